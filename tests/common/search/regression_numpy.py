#!/usr/bin/env python3
"""regression_numpy.py: write regression_facts.h, the results of a Gaussian process in NumPy's float64.

Run it by hand with a Python that has numpy and mpmath; the tests read the committed file. The inputs come from the generator of
asha_ray.py, which test_regression.c has too. The gradient is the analytic one, as traces of full matrices."""
import os
import sys

import mpmath
import numpy

COUNT, DIMENSIONS, PREDICTIONS = 30, 4, 5
THETA = [-0.7, 0.3, -1.2, 0.1, 0.4, -5.0]  # logarithms: four lengths, signal, noise
CATEGORY = 3
DOUBTED, DOUBT = 4, 0.5  # an observation with a doubtful target


def uniforms(seed):
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        word = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        yield ((word ^ word >> 31) >> 11) * 2.0**-53


def squares(a, b):
    """Squared distances by coordinate, [len(a), len(b), DIMENSIONS], divided by the squared lengths."""
    difference = a[:, None, :] - b[None, :, :]
    difference[:, :, CATEGORY] = difference[:, :, CATEGORY] != 0
    return difference**2 * numpy.exp(-2 * numpy.array(THETA[:DIMENSIONS]))


def kernel(square):
    """Matern 5/2, and a constant mean of the signal's variance."""
    r = numpy.sqrt(5 * square.sum(-1))
    return numpy.exp(THETA[-2]) * ((1 + r + r * r / 3) * numpy.exp(-r) + 1)


def main():
    if sys.argv[1:]:
        print(__doc__)
        return 0
    draw = uniforms(1)
    points = numpy.array([[next(draw) for _ in range(DIMENSIONS)] for _ in range(COUNT + PREDICTIONS)])
    points[:, CATEGORY] = numpy.floor(points[:, CATEGORY] * 3) / 3
    inputs, others = points[:COUNT], points[COUNT:]
    targets = numpy.array([next(draw) * 2 - 1 for _ in range(COUNT)])

    square = squares(inputs, inputs)
    plain = kernel(square)
    plain[DOUBTED, DOUBTED] += DOUBT * numpy.exp(THETA[-2])
    covariance = plain + numpy.exp(THETA[-1]) * numpy.eye(COUNT)
    inverse = numpy.linalg.inv(covariance)
    weights = inverse @ targets
    likelihood = (targets @ weights + numpy.linalg.slogdet(covariance)[1] + COUNT * numpy.log(2 * numpy.pi)) / 2
    r = numpy.sqrt(5 * square.sum(-1))
    slope = numpy.exp(THETA[-2]) * 5 / 3 * (1 + r) * numpy.exp(-r)
    derivatives = [slope * square[:, :, k] for k in range(DIMENSIONS)]
    derivatives += [plain, numpy.exp(THETA[-1]) * numpy.eye(COUNT)]
    gradient = [numpy.trace((inverse - numpy.outer(weights, weights)) @ d) / 2 for d in derivatives]
    cross = kernel(squares(others, inputs))
    means = cross @ weights
    deviations = numpy.sqrt(2 * numpy.exp(THETA[-2]) - numpy.einsum("ij,jk,ik->i", cross, inverse, cross))

    mpmath.mp.dps = 60
    steps = [-40.0, -12.5, -5.1, -5.0, -4.9, -1.0, 0.0, 0.7, 6.0, 40.0]
    improvements = [float(mpmath.log(z * mpmath.ncdf(z) + mpmath.npdf(z))) for z in map(mpmath.mpf, steps)]

    def array(name, values):
        return "static const double %s[] = {\n%s};\n" % (name, "".join("    %.17g,\n" % v for v in values))

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "regression_facts.h")
    with open(path, "w", encoding="ascii") as file:
        file.write("/* Written by regression_numpy.py (NumPy %s, mpmath %s). */\n" % (numpy.__version__, mpmath.__version__))
        file.write("enum { COUNT = %d, DIMENSIONS = %d, PREDICTIONS = %d, CATEGORY = %d, DOUBTED = %d };\n" %
                   (COUNT, DIMENSIONS, PREDICTIONS, CATEGORY, DOUBTED))
        file.write("static const double DOUBT = %.17g;\n" % DOUBT)
        file.write(array("expected_theta", THETA) + "static const double expected_likelihood = %.17g;\n" % likelihood)
        file.write(array("expected_gradient", gradient) + array("expected_means", means))
        file.write(array("expected_deviations", deviations))
        file.write(array("improvement_steps", steps) + array("expected_improvements", improvements))
    return 0


sys.exit(main())
