"""Replies to comments, rewarded by toxicity or by upvotes. numpy only."""
