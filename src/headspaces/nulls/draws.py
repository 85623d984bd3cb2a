"""Random draws of the null models: which directions belong to which head (RW section 5.1).

A null model takes the matrix ``M`` (D x n d) that stacks a layer's spaces of one kind and gives another one, which is
cut into heads where the learnt one is. Matrices come in as numpy arrays or torch tensors and stay where they are; the
random numbers are always numpy's, drawn on the CPU, so that they are the same on every device.

Memory order matters here: the stack of a layer ``(head, D, d)`` is held as ``(head, d, D)``, so that ``M`` is the
transpose of a contiguous array and its columns are the contiguous ones.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from jaxtyping import Float, Int

from headspaces.devices import Array, to_numpy
from headspaces.geometry.bases import RANK_RTOL, orthonormal_bases

BLOCK = 128
"""Reflectors that are applied together; half as many in small matrices."""

CONDITION_LIMIT = {8: 1e7, 4: 1e3}
"""By bytes of the number: condition up to which two rounds of Cholesky QR give bases orthonormal to rounding."""


def generator(seed: int, model: str, layer: int, kind: str, null: str, sample: int) -> np.random.Generator:
    """Make the generator of one draw.

    Its stream depends on what is drawn and on nothing else: not on the job, its shard, the order of the work, or which
    other kinds are compared. Different arguments give independent streams.
    """
    name = hashlib.sha256("\0".join([model, kind, null]).encode()).digest()
    words = np.frombuffer(name, dtype="<u4").tolist()
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(*words, layer, sample)))


def rotated(matrix: Float[Array, "d_model columns"], rng: np.random.Generator) -> Float[Array, "d_model columns"]:
    """Multiply by a uniformly random orthogonal matrix: the spectrum-preserving rotation.

    ``M = U S V^T`` becomes ``U S Q^T`` with Haar distributed ``Q``; since ``V^T Q'`` is Haar when ``Q'`` is, that is
    ``M Q'``. All singular values and ``M M^T`` stay. More columns than rows are fine.

    Notes
    -----
    ``Q'`` is never formed. It is a product of Householder reflectors whose vectors are Gaussian, of decreasing length,
    and of signs (Stewart 1980): those that a QR decomposition of a Gaussian matrix would find, with a positive diagonal
    of R, without which the distribution is not uniform. They are applied in blocks, ``H_1 ... H_k = I - V T V^T`` with
    ``T^-1 = striu(V^T V) + diag(V^T V) / 2`` (Joffrain et al. 2006), so that all work is matrix products: as many
    operations as one product with ``Q'``, and no QR.
    """
    xp = array_namespace(matrix)
    d_model, n = matrix.shape
    # Columns of M are rows here, contiguous, and changed in place.
    columns = xp.empty((n, d_model), dtype=matrix.dtype, device=device(matrix))
    columns[...] = matrix.T
    size = BLOCK if n > 8 * BLOCK else BLOCK // 2
    for start in range(0, n, size):
        vectors, signs = _reflectors(n - start, min(size, n - start), rng)
        V = xp.asarray(vectors, dtype=matrix.dtype, device=device(matrix))
        products = V.T @ V
        one = xp.eye(V.shape[1], dtype=matrix.dtype, device=device(matrix))
        T = xp.linalg.solve(xp.triu(products, k=1) + one * products / 2, one)
        rest = columns[start:, :]
        rest -= V @ (T.T @ (V.T @ rest))
        # Later blocks leave these columns alone.
        rest[: V.shape[1], :] *= xp.asarray(signs, dtype=matrix.dtype, device=device(matrix))[:, None]
    return columns.T


def _reflectors(
    length: int, size: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "length size"], Float[np.ndarray, " size"]]:
    """Vectors of Householder reflectors that map Gaussian vectors x to an axis, and the signs of what x becomes there.

    Vector k is zero before coordinate k. Drawn in float64 whatever the arithmetic, so that float32 sees the same draw.
    """
    vectors = np.tril(rng.standard_normal((length, size)))
    k = np.arange(size)
    first = vectors[k, k]
    direction = np.where(first < 0, -1.0, 1.0)
    # Adding the norm with the sign of the first coordinate cancels nothing; x is mapped to the opposite sign.
    vectors[k, k] += direction * np.linalg.norm(vectors, axis=0)
    return vectors, -direction


def reassigned(matrix: Float[Array, "d_model columns"], rng: np.random.Generator) -> Float[Array, "d_model columns"]:
    """Permute the columns uniformly: the learnt columns, given to heads at random."""
    xp = array_namespace(matrix)
    order = xp.asarray(rng.permutation(matrix.shape[1]), device=device(matrix))
    return xp.take(matrix.T, order, axis=0).T


def random_subspaces(
    n: int, d_model: int, d_head: int, rng: np.random.Generator
) -> Float[np.ndarray, "n d_model columns"]:
    """Orthonormal bases of independent uniformly random subspaces; at most ``d_model`` columns."""
    gaussian = rng.standard_normal((n, min(d_head, d_model), d_model)).swapaxes(1, 2)
    basis: np.ndarray = orthonormalised(gaussian)[0]
    return basis


def orthonormalised(
    stack: Float[Array, "head d_model d_head"], rtol: float = RANK_RTOL
) -> tuple[Float[Array, "head d_model columns"], Int[np.ndarray, " head"]]:
    """Orthonormal bases and ranks of the column spaces of a stack, in the stack's own arithmetic.

    Parameters
    ----------
    stack
        One matrix per head. Any size and scale; zero and rank-deficient heads are fine.
    rtol
        Singular values above this part of a head's largest one count towards its rank.

    Returns
    -------
    basis
        ``(head, d_model, min(d_head, d_model))``; columns beyond a head's rank are zero.
    rank
        Numerical ranks.

    Notes
    -----
    Two rounds of Cholesky QR, which are matrix products nearly throughout, for the heads whose condition numbers show
    that this is exact to rounding and that the rank is full. The others are taken one precision higher, and finally by
    singular values.
    """
    xp = array_namespace(stack)
    n, d_model, d_head = stack.shape
    basis, sound = _cholesky_bases(xp, stack, rtol) if d_head <= d_model else (stack[:, :, :d_model], np.zeros(n, bool))
    rank = np.full(n, min(d_head, d_model))
    if not sound.all():
        basis = xp.asarray(basis, copy=True)
        for head in np.flatnonzero(~sound).tolist():
            basis[head, :, :], rank[head] = _thorough_basis(xp, stack[head, :, :], rtol)
    return basis, rank


def among_zero_heads(
    basis: Float[Array, "live d_model d_head"], rank: Int[np.ndarray, " live"], live: Int[np.ndarray, " live"], n: int
) -> tuple[Float[Array, "head d_model d_head"], Int[np.ndarray, " head"]]:
    """Put the bases and ranks of live heads among those of zero heads.

    Parameters
    ----------
    basis, rank
        Of the live heads, as :func:`orthonormalised` gives them.
    live, n
        Numbers of the live heads, and how many heads there are in all.
    """
    xp = array_namespace(basis)
    bases = xp.zeros((n, *basis.swapaxes(1, 2).shape[1:]), dtype=basis.dtype, device=device(basis))
    ranks = np.zeros(n, rank.dtype)
    ranks[live] = rank
    for drawn, head in enumerate(live.tolist()):
        bases[head, :, :] = basis[drawn, :, :].T
    return bases.swapaxes(1, 2), ranks


def _cholesky_bases(xp: Any, stack: Array, rtol: float) -> tuple[Array, np.ndarray]:
    """Bases by Cholesky QR, and for which heads they are sound."""
    n, _, d_head = stack.shape
    try:
        with np.errstate(all="ignore"):
            # Heads whose columns are of very different lengths lose nothing once the lengths are equal.
            rows = xp.matrix_transpose(stack)
            squares = xp.sum(rows * rows, axis=2)
            lengths = xp.where(squares > 0, xp.sqrt(squares), xp.ones_like(squares))
            gram = rows @ stack / (lengths[:, :, None] * lengths[:, None, :])
            inverse = xp.linalg.inv(xp.linalg.cholesky(gram))
            # Frobenius norms bound the condition numbers of the equalised and of the original columns from above.
            equalised = d_head**0.5 * _norm(xp, inverse)
            inverse = inverse / lengths[:, None, :]
            condition = xp.sqrt(xp.sum(squares, axis=1)) * _norm(xp, inverse)
            rows = inverse @ rows
            rows = xp.linalg.inv(xp.linalg.cholesky(rows @ xp.matrix_transpose(rows))) @ rows
            sound = (equalised < CONDITION_LIMIT[stack.dtype.itemsize]) & (condition < 1 / rtol)
        return xp.matrix_transpose(rows), to_numpy(sound)
    except (np.linalg.LinAlgError, RuntimeError) as error:
        # Torch's own LinAlgError is a RuntimeError, as is a GPU that has no memory left.
        if not type(error).__name__.endswith("LinAlgError"):
            raise
        # One head that has no Cholesky factor stops its whole stack.
        if n == 1:
            return stack, np.zeros(1, bool)
        parts = [_cholesky_bases(xp, stack[head : head + 1, :, :], rtol) for head in range(n)]
        return xp.concat([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _thorough_basis(xp: Any, factors: Array, rtol: float) -> tuple[Array, int]:
    double = to_numpy(factors).astype(np.float64)[None]
    if factors.dtype.itemsize < 8 and double.shape[2] <= double.shape[1]:
        basis, sound = _cholesky_bases(array_namespace(double), double, rtol)
        if sound[0]:
            return xp.asarray(basis[0], dtype=factors.dtype, device=device(factors)), double.shape[2]
    bases = orthonormal_bases(double, rtol)
    return xp.asarray(bases.basis[0], dtype=factors.dtype, device=device(factors)), int(bases.rank[0])


def _norm(xp: Any, matrices: Array) -> Array:
    return xp.sqrt(xp.sum(matrices * matrices, axis=(1, 2)))
