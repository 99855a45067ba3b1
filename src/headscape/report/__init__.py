"""Pictures: display data drawn with matplotlib; all drawing lives here."""
