"""The door of an app that was started with --login: who is not logged in sees a button and nothing of the library."""

from __future__ import annotations

import os

import streamlit as st

from fusionscope.app import style

NOT_SET_UP = "Nobody can log in: this server was started with --login, but has no [auth] in .streamlit/secrets.toml."

# Streamlit leads from the provider back to its start page, whatever page the login began at: the tab keeps that one.
KEEP = """<script>
if (location.pathname + location.search !== "/") sessionStorage.setItem("asked", location.href)
</script>"""
RETURN = """<script>{
const asked = sessionStorage.getItem("asked")
sessionStorage.removeItem("asked")
if (asked && asked !== location.href) location.replace(asked)
}</script>"""


def required() -> bool:
    """Whether this app is only for who logs in: $FUSIONSCOPE_LOGIN is set."""
    return bool(os.environ.get("FUSIONSCOPE_LOGIN"))


def require() -> None:
    """Stop at a button for who is not logged in, where that is required; afterwards open what the link named."""
    if not required():
        return
    logged_in = st.user.get("is_logged_in")  # None where Streamlit has no provider
    with st.container(key="unseen"):
        st.html(RETURN if logged_in else KEEP, unsafe_allow_javascript=True)
    if not logged_in:
        if logged_in is None:
            style.notice(NOT_SET_UP)
        else:
            style.sentence("Fusionscope shows this library to those who log in.")
            st.button("Log in", on_click=st.login)
        st.stop()


def name() -> str | None:
    """Who is logged in, by the name or the address that the provider tells; None without a login or either."""
    told = st.user.get("name") or st.user.get("email")
    return str(told) if told and st.user.get("is_logged_in") else None


def log_out() -> None:
    """Who is logged in, and the button that ends it."""
    if required():
        with st.container(key="log-out"):
            st.text(name() or "logged in")
            st.button("Log out", type="tertiary", on_click=st.logout)
