"""Compare decoding and resizing with Pillow; results must agree within one grey level.

   image_oracle.py IMAGE_TOOL
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    from PIL import Image
except ImportError as missing:
    print("SKIP: there is no", missing.name)
    sys.exit(77)

tool = sys.argv[1]
failures = 0


def ours(path, channels, size=None, part=None, augment=None):
    arguments = [tool, path, str(channels)] + (["%dx%d" % size] if size else []) + (["%d,%d,%d,%d" % part] if part else [])
    arguments += [augment] if augment else []
    return numpy.frombuffer(subprocess.run(arguments, check=True, stdout=subprocess.PIPE).stdout, numpy.uint8)


def planes(image, channels):
    array = numpy.asarray(image)
    return (array if channels == 1 else array.transpose(2, 0, 1)).astype(int).ravel()


def check(name, path, channels, size=None, draft=False):
    global failures
    image = Image.open(path)
    if draft:
        image.draft("RGB", (size[1], size[0]))
    image = image.convert("L" if channels == 1 else "RGB")
    if size:
        image = image.resize((size[1], size[0]), Image.BILINEAR)
    expected, got = planes(image, channels), ours(path, channels, size).astype(int)
    worst = abs(expected - got).max() if expected.shape == got.shape else "another size"
    good = worst != "another size" and worst <= 1
    failures += not good
    print("ok  " if good else "FAIL", name, "differs by", worst)


def check_part(name, path, size, part, worst, mean):
    """Compare a JPEG window with a full decode that is cropped and then resized."""
    global failures
    image = Image.open(path).convert("RGB").crop(part).resize((size[1], size[0]), Image.BILINEAR)
    apart = abs(planes(image, 3) - ours(path, 3, size, part).astype(int))
    good = apart.max() <= worst and apart.mean() <= mean
    failures += not good
    print("ok  " if good else "FAIL", name, part, "differs by %d, %.2f on average" % (apart.max(), apart.mean()))


def check_warp(name, path, image, text, forward, size=None):
    """Compare a warp with Pillow's. `forward` is a 3x3 matrix about the image centres; Pillow takes the inverse.

    Pixels inside the image must agree with Pillow, pixels outside must be black."""
    global failures
    height, width = size or (image.height, image.width)
    middle_in = numpy.array([[1, 0, image.width / 2], [0, 1, image.height / 2], [0, 0, 1.0]])
    middle_out = numpy.array([[1, 0, width / 2], [0, 1, height / 2], [0, 0, 1.0]])
    back = middle_in @ numpy.linalg.inv(forward) @ numpy.linalg.inv(middle_out)
    expected = numpy.asarray(image.transform((width, height), Image.AFFINE, tuple(back[:2].ravel()), Image.BILINEAR))
    out = subprocess.run([tool, path, "3", text], check=True, stdout=subprocess.PIPE).stdout
    got = numpy.frombuffer(out, numpy.uint8).reshape(3, height, width).transpose(1, 2, 0)
    y, x = numpy.mgrid[0:height, 0:width] + 0.5
    at_x, at_y = (back[i, 0] * x + back[i, 1] * y + back[i, 2] for i in (0, 1))
    inside = (at_x >= 0.5) & (at_x <= image.width - 0.5) & (at_y >= 0.5) & (at_y <= image.height - 0.5)
    outside = (at_x < -0.5) | (at_x > image.width + 0.5) | (at_y < -0.5) | (at_y > image.height + 0.5)
    apart = abs(expected.astype(int) - got.astype(int))
    good = inside.sum() > inside.size / 4 and apart[inside].max() <= 1 and not got[outside].any()
    failures += not good
    print("ok  " if good else "FAIL", name, text, "differs by", apart[inside].max() if inside.any() else "everything",
          "in %d of %d pixels" % (inside.sum(), inside.size))


def turn(degrees):
    """Return the matrix for a counter-clockwise rotation with y pointing down."""
    a = numpy.radians(degrees)
    return numpy.array([[numpy.cos(a), numpy.sin(a), 0], [-numpy.sin(a), numpy.cos(a), 0], [0, 0, 1]])


def linear(a, b, c, d):
    return numpy.array([[a, b, 0], [c, d, 0], [0, 0, 1.0]])


def shift(x, y):
    return numpy.array([[1, 0, x], [0, 1, y], [0, 0, 1.0]])


def picture(height, width):
    """Return a picture with waves and noise, which contains all frequencies."""
    y, x = numpy.mgrid[0:height, 0:width]
    waves = [127 + 60 * numpy.sin(x * 0.11 * (c + 1)) + 50 * numpy.cos(y * 0.07 - c) for c in range(3)]
    noise = numpy.random.RandomState(7).randint(-17, 18, (height, width, 3))
    return Image.fromarray((numpy.stack(waves, 2) + noise).clip(0, 255).astype(numpy.uint8))


with tempfile.TemporaryDirectory() as folder:
    large, small = picture(375, 500), picture(61, 45)
    files = {}

    def save(name, image, **settings):
        files[name] = os.path.join(folder, name)
        image.save(files[name], **settings)

    save("420.jpg", large, quality=85)
    save("444.jpg", large, quality=95, subsampling=0)
    save("progressive.jpg", large, quality=80, progressive=True)
    save("grey.jpg", large.convert("L"))
    save("cmyk.jpg", large.convert("CMYK"))
    save("rgb.png", large)
    save("palette.png", large.quantize(200))
    save("grey.png", large.convert("L"))
    save("rgba.png", large.convert("RGBA"))
    save("small.png", small)
    save("one.png", large.convert("1"))
    for name, path in files.items():
        check(name + " as RGB", path, 3)
    for name in ("rgb.png", "grey.jpg", "grey.png"):
        check(name + " as grey", files[name], 1)
    for size in ((224, 224), (100, 133), (32, 32), (375, 200), (500, 700), (1, 1), (7, 300)):
        check("rgb.png to %dx%d" % size, files["rgb.png"], 3, size)
        check("small.png to %dx%d" % size, files["small.png"], 3, size)
    # Pillow's draft() chooses the same reduced scale for a JPEG.
    for size in ((224, 224), (180, 240), (93, 125), (32, 32)):
        check("444.jpg to %dx%d" % size, files["444.jpg"], 3, size, draft=True)
    # Windows smaller than twice the result are decoded at full size, as for whole images.
    for part in ((0, 0, 500, 375), (31, 17, 420, 299), (250, 100, 500, 375), (7, 9, 60, 80)):
        for name in ("420.jpg", "444.jpg", "progressive.jpg"):
            check_part(name, files[name], (224, 224), part, 1, 0.5)
    # Windows at least four times as large as the result are decoded at 1/2: the DCT reduces them first,
    # with a different filter.
    for part in ((0, 0, 500, 375), (31, 17, 420, 350)):
        check_part("420.jpg at 1/2", files["420.jpg"], (80, 80), part, 10, 1.5)
    path, image = files["rgb.png"], large
    for degrees in (20, -137, 90):
        check_warp("turned", path, image, "rotation=%d" % degrees, turn(degrees))
    check_warp("enlarged", path, image, "scale=1.3", linear(1.3, 0, 0, 1.3))
    check_warp("smaller", path, image, "x-scale=0.8 y-scale=0.9", linear(0.8, 0, 0, 0.9))
    tan = numpy.tan(numpy.radians(15))
    check_warp("sheared", path, image, "x-shear=15", linear(1, tan, 0, 1))
    check_warp("sheared", path, image, "y-shear=15", linear(1, 0, tan, 1))
    check_warp("shifted", path, image, "x-translation=7.25 y-translation=-3.5", shift(7.25, -3.5))
    check_warp("mirrored", path, image, "x-reflection=1 rotation=10", turn(10) @ linear(-1, 0, 0, 1))
    check_warp("all", path, image, "y-reflection=1 scale=1.2 x-shear=8 rotation=25 x-translation=12",
               shift(12, 0) @ turn(25) @ linear(1, numpy.tan(numpy.radians(8)), 0, 1) @ linear(1.2, 0, 0, -1.2))
    check_warp("cut", path, image, "crop=center crop-size=225,300 rotation=-30", turn(-30), (225, 300))
    # Compare with Pillow's rotate(), an independent definition of centre and direction.
    turned = numpy.asarray(image.rotate(33, Image.BILINEAR)).astype(int)
    ours_turned = ours(path, 3, None, None, "rotation=33").reshape(3, 375, 500).transpose(1, 2, 0).astype(int)
    apart = abs(turned - ours_turned)[120:250, 180:320]
    failures += apart.max() > 1
    print("ok  " if apart.max() <= 1 else "FAIL", "rotate(33) differs by", apart.max())
sys.exit(1 if failures else 0)
