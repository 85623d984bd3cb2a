"""Figures of the report: numbers to panels to PDF and PNG. The only package that knows matplotlib."""
