// AIter has the kernels of a score in a file.
