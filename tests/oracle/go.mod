// Answers scenarios with kube-scheduler's own plugins, to compare ours with. In place of this file,
// devkit/tools/go_programs.py builds it with the go.mod of a minor version, devkit/controlplane/*.
module starsched.dev/oracle

go 1.26.0
