// Answers cases of fair sharing with the originals' own code, to compare the packs with. In place of
// this file, devkit/tools/go_programs.py builds it with a go.mod of modules/, by build tag.
module starsched.dev/fairness

go 1.26.0
