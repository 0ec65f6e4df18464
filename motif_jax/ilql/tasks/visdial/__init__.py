"""Visual dialogue: the agent asks about a picture that only the other side sees. numpy only."""
