"""The binding cycle: reserve, permit, bind; undo beside do; events and status."""
