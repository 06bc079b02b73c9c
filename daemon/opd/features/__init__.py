"""Extended features: what produces data beside plain sampling, as plugins.

``declared`` what a plugin says of a feature, ``hookspecs`` what is called
when, ``discovery`` who offers what, ``arguments`` and ``options`` what was
asked for, ``thread`` how a hook is kept within its bounds, ``host`` the
features that run. A plugin imports :mod:`opd.plugin` and nothing else. Nothing
here is imported while no feature is asked for: start-up has a budget.
"""
