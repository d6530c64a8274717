// AIter has a file for the kernels of each score.
