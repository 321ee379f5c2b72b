"""What would become of the pods that wait if the cluster were another one.

Owns the questions, the copy of the cluster that they are tried on, and the answers.
"""
