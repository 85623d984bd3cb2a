"""Attribution: how much each edge from a writer head to a later reader matters to the loss, first order and exact."""
