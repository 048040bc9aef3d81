"""
The command line, a module for a verb or for verbs that are close.

``app`` gathers the verbs and turns every error into one line and an exit code: begin there. ``options`` holds the
checks and types that several verbs share, ``progress`` the lines and bars on stderr. A verb reads its options, calls
the function of the face that does the work, and prints or writes what that returns.
"""
