"""The words of Fusionscope: what can be recorded, how it is kept, and every question asked of it."""
