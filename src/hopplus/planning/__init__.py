"""What a player makes of what it sees before it acts: beliefs about others."""
