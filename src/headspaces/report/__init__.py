"""The report of a study: tables, figures, scorecard, atlas and page."""
