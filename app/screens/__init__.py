"""The screens: flat scripts that ask data, call a figure and place it."""

# Title, path in the URL (the first is the start page, which has none), file.
PAGES = (
    ("Runs", "", "runs.py"),
    ("Overview", "overview", "overview.py"),
    ("Fusion", "fusion", "fusion.py"),
    ("Memory", "memory", "memory.py"),
    ("Kernels", "kernels", "kernels.py"),
    ("Eager vs compiled", "comparison", "comparison.py"),
    ("Compile", "compile", "compile.py"),
    ("Diff", "diff", "diff.py"),
)

TITLES = {file.removesuffix(".py"): title for title, _, file in PAGES}
