"""How a request proves whose it is: pure functions on the request, the secret and the time.

Each scheme reads a `Claim` from the request (who says to have signed it, and how), and later compares it with
what the secret of that access key gives. Nothing here reads a clock, a database or a socket.
"""
