module starsched.dev/render

go 1.26
