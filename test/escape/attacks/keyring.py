# The kernel's key rings belong to user ids, whatever sandbox a user is in.
SESSION, USER = -3, -4
attempt("find the host's key", lambda: ok(syscall("request_key", b"user", given("CANARY"), None, USER)))
attempt("a key in the user's ring", lambda: ok(syscall("add_key", b"user", b"gift", b"to my neighbour", 15, USER)))
attempt("a key in the session's ring", lambda: ok(syscall("add_key", b"user", b"gift", b"to my neighbour", 15, SESSION)))
attempt("search the user's ring", lambda: ok(syscall("keyctl", 10, USER, b"user", given("CANARY"), 0)))
attempt("read the session's ring", lambda: ok(syscall("keyctl", 11, SESSION, ctypes.create_string_buffer(64), 64)))
attempt("join a session by name", lambda: in_child(lambda: ok(syscall("keyctl", 1, b"_ses"))))
