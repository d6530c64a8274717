"""Writes the .npy files beside it with NumPy, for the reader's tests."""
import numpy as np

x = np.arange(6).reshape(2, 3)
for name in ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]:
    np.save(name, x.astype(name))
np.save("bool", x % 2 == 1)
# The header that np.save writes for an array of ml_dtypes.bfloat16.
with open("bfloat16.npy", "wb") as f:
    np.lib.format.write_array_header_1_0(f, {"descr": "<V2", "fortran_order": False, "shape": x.shape})
    f.write((x.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes())
np.save("fortran", np.asfortranarray(x.astype("<f4")))
np.save("big_endian", x.astype(">f4"))
np.save("big_endian_fortran", np.asfortranarray(x.astype(">i8")))
np.save("scalar", np.float32(7))
np.save("vector", np.arange(3, dtype="<f4"))
np.save("empty", np.zeros((0, 4), "<f4"))
np.save("complex", np.zeros(2, "<c8"))
np.save("structured", np.zeros(2, [("a", "<f4"), ("b", "<i4")]))
for version in [(2, 0), (3, 0)]:
    with open(f"version{version[0]}.npy", "wb") as f:
        np.lib.format.write_array(f, x.astype("<f4"), version)
