"""Export versions of some extensions; each module has the name of its extension."""
