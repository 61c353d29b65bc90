"""What the scripts of paper/ and bench/ share: the command line, data, figures, tables, pages."""
