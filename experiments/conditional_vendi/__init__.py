"""Studies of the Conditional-Vendi paper: its figures and tables, and its statements."""
