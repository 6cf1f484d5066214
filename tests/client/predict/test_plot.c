/* test_plot.c: charts: round axis labels, the drawn pixels, and a file that libpng can read. */
#include <math.h>
#include <png.h>
#include <unistd.h>

#include "client/predict/plot.h"
#include "tests/gp_test.h"

TEST(ticks_are_round_numbers_within_the_range)
{
    static const struct {
        double low, high;
        int most, count;
        double first, step;
    } cases[] = {
        { 0, 1, 8, 6, 0, 0.2 },           { 0, 2.7, 8, 6, 0, 0.5 }, { 0.875, 0.998, 8, 6, 0.88, 0.02 },
        { 0, 20000, 8, 5, 0, 5000 },      { -1, 1, 5, 5, -1, 0.5 }, { 3, 3, 8, 6, 3, 0.2 },
        { 1e-9, 9e-9, 4, 4, 2e-9, 2e-9 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double first, step;

        CHECK_INT(cases[i].count, plot_ticks(cases[i].low, cases[i].high, cases[i].most, &first, &step));
        CHECK_NEAR(cases[i].first, first, 1e-12 + 1e-9 * fabs(first));
        CHECK_NEAR(cases[i].step, step, 1e-9 * step);
    }
}

static uint32_t plot_pixel(const plot *p, int x, int y)
{
    const uint8_t *pixel = p->rgb + ((size_t)y * (size_t)p->width + (size_t)x) * 3;

    return (uint32_t)pixel[0] << 16 | (uint32_t)pixel[1] << 8 | pixel[2];
}

static int count_colour(const plot *p, int width, int height, uint32_t colour)
{
    int count = 0;

    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            count += plot_pixel(p, x, y) == colour;
    return count;
}

TEST(bars_have_heights_in_proportion)
{
    static const char *const names[] = { "1", "2" };
    plot *p = plot_new(500, 400);
    int heights[2] = { 0, 0 };

    REQUIRE(p != NULL);
    plot_bars(p, (plot_area){ 0, 0, 500, 400 }, &(plot_names){ "t", "", "y" }, names,
              (const double[]){ 100, 50 }, 2);
    for (int x = 0; x < 500; x++) {
        int tall[2] = { 0, 0 };

        for (int y = 0; y < 400; y++) {
            tall[0] += plot_pixel(p, x, y) == 0x1f6fb4;
            tall[1] += plot_pixel(p, x, y) == 0xd9541e;
        }
        for (int i = 0; i < 2; i++)
            heights[i] = tall[i] > heights[i] ? tall[i] : heights[i];
    }
    CHECK(heights[0] > 100);
    CHECK_NEAR(0.5, (double)heights[1] / heights[0], 0.02);
    plot_free(p);
}

TEST(every_series_is_drawn_without_points_that_are_not_numbers)
{
    const double x[] = { 0, 1, 2, 3 }, rising[] = { 0, 0.5, NAN, 1 }, falling[] = { 1, INFINITY, 0.4, 0 };
    const plot_series series[] = { { .name = "one", .x = x, .y = rising, .count = 4 },
                                   { .name = "two", .x = x, .y = falling, .count = 4 } };
    plot *p = plot_new(600, 400);

    REQUIRE(p != NULL);
    plot_lines(p, (plot_area){ 0, 0, 600, 400 }, &(plot_names){ "Title!", "x", "y" }, series, 2);
    CHECK(count_colour(p, 600, 400, 0x1f6fb4) > 300);
    CHECK(count_colour(p, 600, 400, 0xd9541e) > 300);
    plot_lines(p, (plot_area){ 0, 0, 600, 400 }, &(plot_names){ "", "", "" }, series, 0); /* no series */
    plot_lines(
        p, (plot_area){ 0, 0, 600, 400 }, &(plot_names){ "", "", "" },
        &(const plot_series){ .name = "flat", .x = x, .y = (const double[]){ 7, 7, 7, 7 }, .count = 4 }, 1);
    plot_lines(p, (plot_area){ 500, 300, 600, 400 }, &(plot_names){ "half outside", "", "" }, series, 2);
    plot_free(p);
    CHECK(plot_new(0, 10) == NULL);
    CHECK(plot_new(10, 1 << 20) == NULL);
}

TEST(marks_only_draws_no_lines)
{
    const double x[] = { 0, 1 }, y[] = { 0, 1 };
    plot *lines = plot_new(600, 400), *marks = plot_new(600, 400);

    REQUIRE(lines != NULL && marks != NULL);
    plot_lines(lines, (plot_area){ 0, 0, 600, 400 }, &(plot_names){ "", "", "" },
               &(const plot_series){ .name = "", .x = x, .y = y, .count = 2 }, 1);
    plot_lines(marks, (plot_area){ 0, 0, 600, 400 }, &(plot_names){ "", "", "" },
               &(const plot_series){ .name = "", .x = x, .y = y, .count = 2, .marks_only = true }, 1);
    CHECK(count_colour(lines, 600, 400, 0x1f6fb4) > 1000);
    CHECK(count_colour(marks, 600, 400, 0x1f6fb4) < 300); /* two marks and the legend */
    plot_free(lines);
    plot_free(marks);
}

/* Return the lowest and highest row of a column that has the color. */
static bool rows_of(const plot *p, int x, uint32_t colour, int *top, int *bottom)
{
    *top = *bottom = -1;
    for (int y = 0; y < p->height; y++)
        if (plot_pixel(p, x, y) == colour) {
            *top = *top < 0 ? y : *top;
            *bottom = y;
        }
    return *top >= 0;
}

TEST(parallel_coordinates_connect_the_values_of_a_row)
{
    enum { BEST = 0xd9541e, BLUE = 0x1f6fb4 };
    const plot_label ends[] = { { 0, "0" }, { 1, "1" } };
    const plot_axis axes[] = { { "a", ends, 2 }, { "b", ends, 2 }, { "c", ends, 2 } };
    const double rows[] = { 0.5, 0.5, NAN, 0, 1, 1 }, shades[] = { 1, 0 };
    plot *p = plot_new(600, 400);
    int top, bottom, low, high;

    REQUIRE(p != NULL);
    plot_parallel(p, (plot_area){ 0, 0, 600, 400 }, "title", axes, 3, rows, shades, 2);
    /* the last row rises from the first axis to the second one, and stays at the top */
    REQUIRE(rows_of(p, 150, BEST, &top, &bottom));
    low = bottom;
    REQUIRE(rows_of(p, 280, BEST, &top, &bottom));
    high = bottom;
    CHECK(low > high + 50);
    REQUIRE(rows_of(p, 400, BEST, &top, &bottom));
    CHECK(bottom - top < 8);
    /* the first row is blue, and ends at the second axis, as it has no third value */
    CHECK(rows_of(p, 250, BLUE, &top, &bottom));
    CHECK(!rows_of(p, 400, BLUE, &top, &bottom));
    /* no rows; one axis; an area outside the picture */
    plot_parallel(p, (plot_area){ 0, 0, 600, 400 }, "", axes, 3, rows, shades, 0);
    plot_parallel(p, (plot_area){ 0, 0, 600, 400 }, "", axes, 1, rows, shades, 1);
    plot_parallel(p, (plot_area){ 500, 300, 600, 400 }, "", axes, 3, rows, shades, 2);
    plot_free(p);
}

TEST(matrix_is_blue_on_the_diagonal_and_red_elsewhere)
{
    static const char *const names[] = { "cat", "dog", "a name of more than twenty-four letters" };
    gp_confusion *matrix = NULL;
    uint32_t blue = 0, red = 0;
    plot *p;
    gp_error err;

    REQUIRE_OK(gp_confusion_new(&matrix, 3, names, &err), err);
    matrix->counts[0] = 7;     /* all cats correct */
    matrix->counts[3] = 12345; /* all dogs predicted as cats */
    p = plot_matrix_new(matrix, "accuracy");
    REQUIRE(p != NULL);
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++) {
            blue += plot_pixel(p, x, y) == 0x124e8c;
            red += plot_pixel(p, x, y) == 0xb02a1a;
        }

    /* less the white digits: five digits cover more pixels than one */
    CHECK(blue > 1000 && red > 1000);
    CHECK(red < blue);
    plot_free(p);
    gp_confusion_free(matrix);

    /* With many classes, each cell has at least one pixel. */
    REQUIRE_OK(gp_confusion_new(&matrix, 1500, NULL, &err), err);
    for (size_t i = 0; i < 1500; i++)
        matrix->counts[i * 1500 + i] = i + 1;
    p = plot_matrix_new(matrix, "");
    REQUIRE(p != NULL);
    blue = 0;
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++)
            blue += plot_pixel(p, x, y) == 0x124e8c;
    CHECK_INT(1500, blue);
    plot_free(p);
    gp_confusion_free(matrix);
}

TEST(file_is_a_png_with_the_drawn_pixels)
{
    char path[] = "/tmp/gradpool-test-XXXXXX";
    png_image image = { .version = PNG_IMAGE_VERSION };
    plot *p = plot_new(301, 200);
    uint8_t *read = malloc(301 * 200 * 3);
    int file = mkstemp(path), wrong = 0;
    gp_error err;

    REQUIRE(p != NULL && file >= 0 && read != NULL);
    plot_bars(p, (plot_area){ 0, 0, 301, 200 }, &(plot_names){ "0123456789", "%", "a" },
              (const char *const[]){ "x" }, (const double[]){ 5 }, 1);
    REQUIRE_OK(plot_write(p, path, &err), err);
    REQUIRE(png_image_begin_read_from_file(&image, path) != 0);
    image.format = PNG_FORMAT_RGB;
    CHECK_INT(301, image.width);
    CHECK_INT(200, image.height);
    REQUIRE(png_image_finish_read(&image, NULL, read, 0, NULL) != 0);
    for (int i = 0; i < 301 * 200; i++)
        wrong += plot_pixel(p, i % 301, i / 301) !=
                 ((uint32_t)read[3 * i] << 16 | (uint32_t)read[3 * i + 1] << 8 | read[3 * i + 2]);
    CHECK_INT(0, wrong);
    CHECK_STATUS(GP_EIO, plot_write(p, "/nowhere/at/all.png", &err));
    close(file);
    unlink(path);
    free(read);
    plot_free(p);
}
