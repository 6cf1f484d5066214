/* Unit tests for confusion matrices: against counts by hand, against the definitions applied to
 * individual samples, and through every output format. */
#include "common/base/text/json.h"
#include "common/base/metrics.h"
#include "common/base/system/metrics_put.h"
#include "tests/gp_test.h"

static const char *const animals[] = { "cat", "dog", "emu", "fox" };

/* Three cats, four dogs, no emu, one fox, and two samples without a class:
 *            cat dog emu fox
 *       cat    2   0   1   0
 *       dog    1   3   0   0
 *       emu    0   0   0   0
 *       fox    0   1   0   0 */
static const int32_t truth[] = { 0, 0, 0, 1, 1, 1, 1, 3, -1, -1 },
                     predicted[] = { 0, 0, 2, 1, 1, 1, 0, 1, 0, 3 };

/* Create a matrix that contains the samples above. */
static gp_confusion *counted(void)
{
    gp_confusion *matrix = NULL;

    if (gp_confusion_new(&matrix, 4, animals, NULL) != GP_OK)
        abort();
    CHECK_INT(8, gp_confusion_count(matrix, truth, predicted, 10));
    return matrix;
}

TEST(counts_and_metrics_match_a_manual_count)
{
    static const uint64_t expected[16] = { 2, 0, 1, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0 };
    gp_confusion *matrix = counted();
    const gp_metrics all = gp_confusion_metrics(matrix);
    const gp_class_metrics cat = gp_confusion_class(matrix, 0), emu = gp_confusion_class(matrix, 2),
                           fox = gp_confusion_class(matrix, 3);

    CHECK(memcmp(expected, matrix->counts, sizeof(expected)) == 0);
    CHECK_INT(3, cat.truth);
    CHECK_INT(3, cat.predicted);
    CHECK_NEAR(2.0 / 3, cat.recall, 1e-15);
    CHECK_NEAR(2.0 / 3, cat.precision, 1e-15);
    CHECK_NEAR(4.0 / 6, cat.f1, 1e-15);
    CHECK_NEAR(2.0 / 4, cat.iou, 1e-15);
    /* No sample is an emu, but a cat was predicted as one. */
    CHECK(isnan(emu.recall));
    CHECK_NEAR(0, emu.precision, 0);
    CHECK_NEAR(0, emu.f1, 0);
    CHECK_NEAR(0, emu.iou, 0);
    /* No sample was predicted as a fox. */
    CHECK_NEAR(0, fox.recall, 0);
    CHECK(isnan(fox.precision));
    CHECK_NEAR(0, fox.iou, 0);
    CHECK_INT(8, all.count);
    CHECK_INT(3, all.present);
    CHECK_NEAR(5.0 / 8, all.accuracy, 1e-15);
    CHECK_NEAR((2.0 / 3 + 3.0 / 4 + 0) / 3, all.mean_accuracy, 1e-15);
    CHECK_NEAR((2.0 / 3 + 3.0 / 4 + 0) / 3, all.mean_precision, 1e-15);
    CHECK_NEAR((4.0 / 6 + 6.0 / 8 + 0 + 0) / 4, all.mean_f1, 1e-15);
    CHECK_NEAR((2.0 / 4 + 3.0 / 5 + 0 + 0) / 4, all.mean_iou, 1e-15);
    CHECK_NEAR((3 * 0.5 + 4 * 0.6 + 0) / 8, all.weighted_iou, 1e-15);
    gp_confusion_free(matrix);
}

TEST(an_empty_matrix_has_undefined_metrics)
{
    gp_confusion *matrix = NULL;
    gp_metrics all;
    gp_error err;

    REQUIRE_OK(gp_confusion_new(&matrix, 2, NULL, &err), err);
    all = gp_confusion_metrics(matrix);
    CHECK_TEXT("1", matrix->class_names[1]);
    CHECK_INT(0, all.count);
    CHECK_INT(0, all.present);
    CHECK(isnan(all.accuracy) && isnan(all.mean_accuracy) && isnan(all.mean_iou) && isnan(all.weighted_iou));
    gp_confusion_free(matrix);
}

enum { SAMPLES = 5000, CLASSES = 23 };

/* Draw labels so that some classes never occur as true class, some never as predicted class, and
 * some never at all. */
static void labels_draw(int32_t *is, int32_t *given)
{
    uint32_t state = 7;

    for (int i = 0; i < SAMPLES; i++) {
        state = state * 1664525u + 1013904223u;
        is[i] = (int32_t)(state >> 16) % (CLASSES - 3) - 1;
        state = state * 1664525u + 1013904223u;
        given[i] = state >> 30 != 0 && is[i] >= 2 ? is[i] : 2 + (int32_t)(state >> 16) % (CLASSES - 4);
    }
}

TEST(metrics_match_their_definitions_applied_to_the_samples)
{
    static int32_t is[SAMPLES], given[SAMPLES];
    gp_confusion *matrix = NULL;
    double recall = 0, iou = 0, weighted = 0, right = 0, count = 0;
    int present = 0, met = 0;
    gp_error err;

    labels_draw(is, given);
    REQUIRE_OK(gp_confusion_new(&matrix, CLASSES, NULL, &err), err);
    gp_confusion_count(matrix, is, given, SAMPLES);
    for (int32_t c = 0; c < CLASSES; c++) {
        double both = 0, either = 0, own = 0;

        for (int i = 0; i < SAMPLES; i++) {
            if (is[i] < 0)
                /* void pixel: not counted */
                continue;
            both += is[i] == c && given[i] == c;
            either += is[i] == c || given[i] == c;
            own += is[i] == c;
        }
        const gp_class_metrics m = gp_confusion_class(matrix, (uint32_t)c);

        CHECK_NEAR(own, (double)m.truth, 0);
        right += both;
        count += own;
        if (own > 0) {
            recall += both / own;
            present++;
            CHECK_NEAR(both / own, m.recall, 1e-14);
        }
        if (either > 0) {
            iou += both / either;
            weighted += own * both / either;
            met++;
            CHECK_NEAR(both / either, m.iou, 1e-14);
        } else {
            CHECK(isnan(m.iou));
        }
    }
    const gp_metrics all = gp_confusion_metrics(matrix);

    /* The data covers all three kinds of absent classes. */
    CHECK(present < met && met < CLASSES);
    CHECK_INT(present, all.present);
    CHECK_NEAR(right / count, all.accuracy, 1e-14);
    CHECK_NEAR(recall / present, all.mean_accuracy, 1e-14);
    CHECK_NEAR(iou / met, all.mean_iou, 1e-14);
    CHECK_NEAR(weighted / count, all.weighted_iou, 1e-14);
    gp_confusion_free(matrix);
}

TEST(packed_parts_add_up_to_the_whole_matrix)
{
    static int32_t is[SAMPLES], given[SAMPLES];
    gp_confusion *whole = NULL, *unpacked = NULL;
    gp_error err;

    labels_draw(is, given);
    REQUIRE_OK(gp_confusion_new(&whole, CLASSES, NULL, &err), err);
    REQUIRE_OK(gp_confusion_new(&unpacked, CLASSES, NULL, &err), err);
    gp_confusion_count(whole, is, given, SAMPLES);
    for (int first = 0; first < SAMPLES; first += 777) {
        const int count = SAMPLES - first < 777 ? SAMPLES - first : 777;
        gp_confusion *part;
        gp_buffer cells;

        REQUIRE_OK(gp_confusion_new(&part, CLASSES, NULL, &err), err);
        gp_confusion_count(part, is + first, given + first, (size_t)count);
        gp_buffer_init(&cells, 1 << 20);
        CHECK_STATUS(GP_OK, gp_confusion_pack(part, &cells, &err));
        CHECK_STATUS(GP_OK, gp_confusion_unpack(unpacked, cells.data, cells.bytes, &err));
        gp_buffer_deinit(&cells);
        gp_confusion_free(part);
    }
    CHECK(memcmp(whole->counts, unpacked->counts, sizeof(uint64_t) * CLASSES * CLASSES) == 0);
    gp_confusion_free(whole);
    gp_confusion_free(unpacked);
}

TEST(invalid_cells_are_rejected_and_nothing_is_added)
{
    static const uint8_t good[16] = { 0, 0, 0, 0, 1, 0, 0, 0, 5 };
    static const struct {
        uint8_t bytes[32];
        size_t count;
    } cases[] = {
        { { 0 }, 15 },                                        /* incomplete cell */
        { { 0, 0, 0, 0, 0, 0, 0, 0, 0 }, 16 },                /* zero count */
        { { 4, 0, 0, 0, 0, 0, 0, 0, 1 }, 16 },                /* true class out of range */
        { { 0, 0, 0, 0, 0, 0, 0, 1, 1 }, 16 },                /* predicted class out of range */
        { { 1, [8] = 1, [16] = 0, [20] = 1, [24] = 1 }, 32 }, /* unordered cells */
        { { 1, [8] = 1, [16] = 1, [24] = 1 }, 32 },           /* duplicate cell */
        /* 5 + 2^64 - 1 overflows */
        { { 0, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255 }, 16 },
    };
    gp_confusion *matrix = NULL;
    gp_error err;

    REQUIRE_OK(gp_confusion_new(&matrix, 4, animals, &err), err);
    CHECK_STATUS(GP_OK, gp_confusion_unpack(matrix, good, sizeof(good), &err));
    CHECK_INT(5, matrix->counts[1]);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_STATUS(GP_EPROTO, gp_confusion_unpack(matrix, cases[i].bytes, cases[i].count, &err));
    CHECK_CONTAINS(err.message, "18446744073709551615 samples of class 0 predicted as class 1");
    for (int i = 0; i < 16; i++)
        CHECK_INT(i == 1 ? 5 : 0, matrix->counts[i]);
    gp_confusion_free(matrix);
    CHECK_STATUS(GP_EINVAL, gp_confusion_new(&matrix, 0, NULL, &err));
    CHECK_STATUS(GP_EINVAL, gp_confusion_new(&matrix, GP_CONFUSION_CLASSES_MAX + 1, NULL, &err));
    CHECK_CONTAINS(err.message, "4097 classes: must have 1 to 4096");
}

/* Check the text that gp_confusion_format() writes. */
#define CHECK_FORMAT(matrix, form, expected)                                                                 \
    do {                                                                                                     \
        char *text_ = NULL;                                                                                  \
        gp_error err_;                                                                                       \
        REQUIRE_OK(gp_confusion_format(matrix, form, &text_, &err_), err_);                                  \
        CHECK_TEXT(expected, text_);                                                                         \
        gp_free(text_);                                                                                      \
    } while (0)

TEST(a_small_matrix_is_printed_as_a_table)
{
    gp_confusion *matrix = counted();

    CHECK_FORMAT(matrix, GP_CONFUSION_TABLE,
                 "true \\ predicted  cat  dog  emu  fox\n"
                 "cat                 2    0    1    0\n"
                 "dog                 1    3    0    0\n"
                 "emu                 0    0    0    0\n"
                 "fox                 0    1    0    0\n");
    CHECK_FORMAT(matrix, GP_CONFUSION_CLASSES,
                 "class        count    predicted     recall  precision         F1        IoU\n"
                 "cat              3            3     0.6667     0.6667     0.6667     0.5000\n"
                 "dog              4            4     0.7500     0.7500     0.7500     0.6000\n"
                 "emu              0            1          -     0.0000     0.0000     0.0000\n"
                 "fox              1            0     0.0000          -     0.0000     0.0000\n"
                 "mean                                0.4722     0.4722     0.3542     0.2750\n");
    CHECK_FORMAT(matrix, GP_CONFUSION_CSV,
                 "true\\predicted,cat,dog,emu,fox\n"
                 "cat,2,0,1,0\ndog,1,3,0,0\nemu,0,0,0,0\nfox,0,1,0,0\n");
    gp_confusion_free(matrix);
}

TEST(long_and_non_ascii_class_names_keep_columns_and_csv_fields_intact)
{
    static const char *const names[] = { "K\xc3\xa4tzchen", "a, \"b\"",
                                         "a name of more than twenty-four letters" };
    gp_confusion *matrix = NULL;
    gp_error err;

    REQUIRE_OK(gp_confusion_new(&matrix, 3, names, &err), err);
    matrix->counts[0] = 12345678901;
    CHECK_FORMAT(matrix, GP_CONFUSION_TABLE,
                 "true \\ predicted             K\xc3\xa4tzchen  a, \"b\"  a name of more than twen\n"
                 "K\xc3\xa4tzchen                  12345678901       0                         0\n"
                 "a, \"b\"                              0       0                         0\n"
                 "a name of more than twen            0       0                         0\n");
    CHECK_FORMAT(matrix, GP_CONFUSION_CSV,
                 "true\\predicted,K\xc3\xa4tzchen,\"a, \"\"b\"\"\",a name of more than twenty-four letters\n"
                 "K\xc3\xa4tzchen,12345678901,0,0\n\"a, \"\"b\"\"\",0,0,0\na name of more than twenty-four "
                 "letters,0,0,0\n");
    gp_confusion_free(matrix);
}

TEST(class_names_cannot_inject_control_characters_or_lines)
{
    static const char *const names[] = { "a\033[31m", "b\nforged  1  1" };
    gp_confusion *matrix = NULL;
    gp_error err;

    REQUIRE_OK(gp_confusion_new(&matrix, 2, names, &err), err);
    CHECK_FORMAT(matrix, GP_CONFUSION_TABLE,
                 "true \\ predicted  a?[31m  b?forged  1  1\n"
                 "a?[31m                 0               0\n"
                 "b?forged  1  1         0               0\n");
    gp_confusion_free(matrix);
}

TEST(a_large_matrix_is_printed_as_its_most_frequent_confusions)
{
    gp_confusion *matrix = NULL;
    char *text = NULL;
    int lines = 0;
    gp_error err;

    REQUIRE_OK(gp_confusion_new(&matrix, 100, NULL, &err), err);
    CHECK_FORMAT(matrix, GP_CONFUSION_TABLE, "no sample was assigned to a wrong class\n");
    for (uint32_t i = 0; i < 100; i++) {
        matrix->counts[i * 100 + i] = 1000;
        matrix->counts[i * 100 + (i + 1) % 100] = i;
    }
    REQUIRE_OK(gp_confusion_format(matrix, GP_CONFUSION_TABLE, &text, &err), err);
    for (const char *p = text; *p != '\0'; p++)
        lines += *p == '\n';
    CHECK_INT(20, lines);
    CHECK(strncmp(text, "        99  99 predicted as 0\n        98  98 predicted as 99\n", 60) == 0);
    gp_free(text);
    gp_confusion_free(matrix);
}

TEST(json_contains_the_counts_and_null_for_undefined_metrics)
{
    gp_confusion *matrix = counted();
    gp_json *json = NULL;
    char *text = NULL;
    gp_error err;

    REQUIRE_OK(gp_confusion_format(matrix, GP_CONFUSION_JSON, &text, &err), err);
    REQUIRE_OK(gp_json_parse(&json, text, strlen(text), &err), err);
    const gp_json *counts = gp_json_member(json, "counts"),
                  *emu = gp_json_element(gp_json_member(json, "per_class"), 2);

    CHECK_INT(3, gp_json_integer(gp_json_element(gp_json_element(counts, 1), 1), -1));
    CHECK_TEXT("fox", gp_json_text(gp_json_element(gp_json_member(json, "classes"), 3), ""));
    CHECK_NEAR(0.275, gp_json_number(gp_json_member(gp_json_member(json, "metrics"), "mean_iou"), -1), 1e-15);
    CHECK_TEXT("emu", gp_json_text(gp_json_member(emu, "class"), ""));
    CHECK(gp_json_member(emu, "recall") != NULL && !gp_json_is_number(gp_json_member(emu, "recall")));
    gp_json_free(json);
    gp_free(text);
    gp_confusion_free(matrix);
}

TEST(out_of_memory_is_reported_and_nothing_leaks)
{
    gp_confusion *matrix = NULL, *whole = counted();
    char *text = NULL;
    gp_error err;

    CHECK_EVERY_ALLOCATION(gp_confusion_new(&matrix, 4, animals, &err), gp_confusion_free(matrix));
    CHECK_EVERY_ALLOCATION(gp_confusion_format(whole, GP_CONFUSION_CLASSES, &text, &err), gp_free(text));
    gp_confusion_free(whole);
}
