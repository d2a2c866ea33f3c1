"""Tests of the console; a package, so that what browses its pages runs as a program, too."""
