"""The loop that moves jobs along: admit, submit, watch, finish, recover."""
