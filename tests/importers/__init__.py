"""Importers of other tools' formats."""
