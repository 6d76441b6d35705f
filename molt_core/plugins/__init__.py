"""From names to specs: which plugins are installed, which one a name means, and what it says about itself.

Entry points in, `Spec` objects out. Only a chosen plugin is imported.
"""
