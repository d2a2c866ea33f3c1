"""Tests of the console, and the hostile texts that its campaigns show, too."""
