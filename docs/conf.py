"""Sphinx configuration: Markdown and docstrings become a site that needs no network, to build or to read.

`make docs` builds it with warnings as errors, so that a broken link or cross-reference fails.
"""

import re
from logging import LogRecord, getLogger
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util import logging

import hopplus

ROOT = Path(__file__).resolve().parent.parent
ARRAY = re.compile(r"\bjaxlib[\w.]*\.Array\b")
"""JAX's internal name of its array type."""
LOGGER = logging.getLogger(__name__)

project = "hopplus"
author = "the authors of hopplus"
copyright = author
release = hopplus.__version__
version = release
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "**.ipynb"]
source_suffix = {".md": "markdown"}
default_role = "code"
nitpick_ignore_regex = [("py:.*", r"(?!hopplus\.).*"), ("py:.*", r".*\b(T|R|State|Memory|Info|Params|Metrics|Key)")]
"""Names of other libraries, and type aliases without a page of their own."""

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"hopplus {release}"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
pygments_style = "default"


def mathml(latex: str, display: str, node: nodes.Node) -> str:
    """Returns an equation as MathML, which browsers render natively; warns of unknown commands."""
    markup = convert(latex, display=display)
    unknown = sorted(set(re.findall(r"\\[A-Za-z]+", re.sub(r"<annotation.*?</annotation>", "", markup))))
    if unknown:
        LOGGER.warning("unknown commands in an equation: %s", ", ".join(unknown), location=node)
    return markup


def visit_math(translator: Any, node: nodes.math) -> None:
    """Writes an inline equation."""
    translator.body.append(mathml(node.astext(), "inline", node))
    raise nodes.SkipNode


def visit_displayed_math(translator: Any, node: nodes.math_block) -> None:
    """Writes a displayed equation."""
    translator.body.append(f'<div class="math">{mathml(node.astext(), "block", node)}</div>\n')
    raise nodes.SkipNode


def name_folders(app: Sphinx, doctree: nodes.document) -> None:
    """Replaces links to folders of the repository by their paths; a link to a missing folder stays and fails."""
    here = Path(app.env.doc2path(app.env.docname)).parent
    for link in list(doctree.findall(pending_xref)):
        folder = (here / link.get("reftarget", "")).resolve()
        if link.get("reftype") == "myst" and folder.is_dir() and folder.is_relative_to(ROOT):
            path = nodes.literal("", f"{folder.relative_to(ROOT).as_posix()}/")
            link.replace_self([nodes.inline("", link.astext()), nodes.Text(" ("), path, nodes.Text(")")])


def shorten_types(app: Sphinx, doctree: nodes.document) -> None:
    """Shortens array types to `Float[Array, "n"]`."""
    for text in list(doctree.findall(nodes.Text)):
        if ARRAY.search(text):
            text.parent.replace(text, nodes.Text(ARRAY.sub("Array", text)))


def format_sections(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Formats `Args:` and `Returns:` sections. (As an extension, napoleon takes a colon in a field's docstring for the
    end of a type.)"""
    if what not in ("attribute", "property", "data"):
        lines[:] = GoogleDocstring(lines, Config(), what="function").lines()


def matters(record: LogRecord) -> bool:
    """Returns False for warnings about an empty glob in a table of contents.

    (Sphinx gives that warning a subtype but no type, so that `suppress_warnings` cannot name it.)
    """
    return getattr(record, "subtype", None) != "empty_glob"


def setup(app: Sphinx) -> None:
    """Sphinx's entry point."""
    getLogger("sphinx.sphinx.directives.other").addFilter(matters)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed_math, None))
    app.connect("autodoc-process-docstring", format_sections)
    app.connect("doctree-read", name_folders)
    app.connect("doctree-read", shorten_types)
