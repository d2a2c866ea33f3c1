"""A Django project with tasks, for workers of the tests."""
