"""How programs talk to a service: where it is, HTTP on its socket, jobs as futures."""
