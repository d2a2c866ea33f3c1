"""The public interface as users meet it: help, type checkers, wrong arguments."""
