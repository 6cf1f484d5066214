/* Label images and overlays: write, read back, compare. Also images of individual sizes, and images
 * without labels. */
#include <sys/stat.h>

#include "common/base/memory/alloc.h"
#include "common/data/image/image.h"
#include "common/data/source/palette.h"
#include "common/data/store/store.h"
#include "tests/common/data/folder.h"
#include "tests/common/data/make_images.h"
#include "tests/gp_test.h"

static const char *const names[] = { "sky", "road" };

static void directory_put(const char *name)
{
    if (mkdir(in_folder(name), 0700) != 0)
        abort();
}

static void text_put(const char *name, const char *text)
{
    file_put(in_folder(name), text, strlen(text));
}

/* Create a grey picture, height x width, whose values count up, and a label image with columns 0,
 * 1, 2, 0, ... */
static void picture_put(const char *name, const char *label, uint32_t height, uint32_t width)
{
    uint8_t grey[400], columns[400];

    for (uint32_t i = 0; i < height * width; i++) {
        grey[i] = (uint8_t)i;
        columns[i] = (uint8_t)(i % width % 3);
    }
    make_png(in_folder(name), &(made_image){ .width = width, .height = height, .channels = 1, .data = grey });
    if (label != NULL)
        make_png(in_folder(label),
                 &(made_image){ .width = width, .height = height, .channels = 1, .data = columns });
}

static void shell(const char *command)
{
    char text[600];

    snprintf(text, sizeof(text), "cd '%s' && %s", in_folder(""), command);
    if (system(text) != 0)
        abort();
}

TEST(class_files_are_read_from_archives)
{
    static const char *const sources[] = { "one.tar", "many" };
    gp_palette palette;
    bool found;
    gp_error e;

    folder_make();
    directory_put("set");
    directory_put("set/images");
    directory_put("many");
    picture_put("set/images/a.png", NULL, 2, 2);
    text_put("set/classes.csv", "void\nroad\nsky\n");
    shell("tar cf one.tar set && tar cf many/1.tar set");
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(gp_palette_read(&palette, &found, in_folder(sources[i]), names, 2, &e), e);
        REQUIRE(found);
        CHECK_INT(2, palette.value[0]); /* sky */
        CHECK_INT(1, palette.value[1]);
    }
    shell("tar cf one.tar set/images");
    REQUIRE_OK(gp_palette_read(&palette, &found, in_folder("one.tar"), names, 2, &e), e);
    CHECK(!found);
}

TEST(label_images_use_numbers_and_colours_from_the_class_file)
{
    static const int32_t classes[] = { 0, 1, 1, 0, 0, 1 };
    gp_image_decoder *decoder;
    gp_palette palette;
    gp_pixels pixels;
    uint8_t *file;
    size_t bytes;
    bool found;
    char *csv;
    gp_error e;

    folder_make();
    text_put("classes.csv", "name,r,g,b\nvoid,0,0,0\nroad,128,64,128\nsky,1,2,3\n");
    REQUIRE_OK(gp_palette_read(&palette, &found, in_folder(""), names, 2, &e), e);
    CHECK(found);
    REQUIRE_OK(gp_palette_label(&palette, classes, 2, 3, &file, &bytes, &e), e);
    REQUIRE_OK(gp_image_decoder_new(&decoder, &e), e);
    REQUIRE_OK(gp_image_decode_index(decoder, &pixels, file, bytes, "label", &e), e);
    CHECK_INT(3, pixels.width);
    for (int i = 0; i < 6; i++)
        CHECK_INT(classes[i] == 0 ? 2 : 1, pixels.data[i]); /* line numbers in the file */
    REQUIRE_OK(gp_image_decode(decoder, &pixels, &(gp_image_want){ .channels = 3 }, file, bytes, "label", &e),
               e);
    CHECK(memcmp(pixels.data, "\x01\x02\x03\x80\x40\x80", 6) == 0);
    gp_free(file);
    REQUIRE_OK(gp_palette_to_csv(&palette, &csv, &e), e);
    CHECK_TEXT("name,r,g,b\nvoid,0,0,0\nroad,128,64,128\nsky,1,2,3\n", csv);
    gp_free(csv);
    text_put("classes.csv", "road\nbridge\n");
    CHECK_STATUS(GP_EINVAL, gp_palette_read(&palette, &found, in_folder(""), names, 2, &e));
    CHECK_CONTAINS(e.message, "lacks the class 'sky'");
    CHECK_STATUS(GP_EIO, gp_palette_read(&palette, &found, in_folder("none-such"), names, 2, &e));
    CHECK_CONTAINS(e.message, "the class file");
    gp_image_decoder_free(decoder);
}

TEST(default_colours_are_blended_over_the_image)
{
    static const int32_t classes[] = { 0, 1 };
    static const uint8_t grey[] = { 100, 200 };
    gp_image_decoder *decoder;
    gp_palette palette;
    gp_pixels pixels;
    uint8_t *file;
    size_t bytes;
    gp_error e;

    REQUIRE_OK(gp_palette_default(&palette, names, 2, &e), e);
    REQUIRE_OK(gp_image_decoder_new(&decoder, &e), e);
    for (int quarter = 0; quarter <= 4; quarter++) {
        REQUIRE_OK(gp_palette_overlay(&palette, classes, grey, 1, 1, 2, quarter / 4.0, &file, &bytes, &e), e);
        REQUIRE_OK(
            gp_image_decode(decoder, &pixels, &(gp_image_want){ .channels = 3 }, file, bytes, "over", &e), e);
        for (int i = 0; i < 2; i++)
            for (int c = 0; c < 3; c++) { /* the first two VOC colours: 128,0,0 and 0,128,0 */
                const double colour = c == i ? 128 : 0;

                CHECK_NEAR(grey[i] + (colour - grey[i]) * quarter / 4.0, pixels.data[3 * i + c], 0.51);
            }
        gp_free(file);
    }
    gp_image_decoder_free(decoder);
    CHECK_STATUS(GP_ELIMIT, gp_palette_default(&palette, names, 255, &e));
}

TEST(images_and_labels_are_read_at_individual_sizes)
{
    gp_whole whole = { 0 };
    gp_store *store;
    gp_error e;

    folder_make();
    directory_put("images");
    directory_put("labels");
    text_put("classes.csv", "sky\nroad\ncar\n");
    picture_put("images/a.png", "labels/a.png", 6, 9);
    picture_put("images/b.png", "labels/b.png", 12, 5);
    REQUIRE_OK(gp_store_open_with(&store, in_folder(""), GP_DATA_GIVEN,
                                  &(gp_store_options){ .height = 4, .width = 4, .channels = 1 }, &e),
               e);
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t height = i == 0 ? 6 : 12, width = i == 0 ? 9 : 5;

        REQUIRE_OK(gp_store_read_whole(store, i, &(gp_whole_size){ 0, 0, false }, &whole, &e), e);
        CHECK_INT(height, whole.height);
        CHECK_INT(width, whole.read_width);
        for (uint32_t p = 0; p < height * width; p++) {
            CHECK_INT(p, ((const uint8_t *)whole.sample)[p]);
            CHECK_INT(p % width % 3, whole.labels[p]);
        }
        REQUIRE_OK(gp_store_read_whole(store, i, &(gp_whole_size){ 3, 3, false }, &whole, &e), e);
        CHECK_INT(height, whole.height);
        CHECK_INT(3, whole.read_height);
        CHECK_INT(2, whole.labels[2]); /* labels keep the image size */
    }
    /* Smallest size with the image's proportions that covers 4x4. */
    REQUIRE_OK(gp_store_read_whole(store, 0, &(gp_whole_size){ 4, 4, true }, &whole, &e), e);
    CHECK_INT(4, whole.read_height);
    CHECK_INT(6, whole.read_width);
    REQUIRE_OK(gp_store_read_whole(store, 1, &(gp_whole_size){ 4, 4, true }, &whole, &e), e);
    CHECK_INT(10, whole.read_height); /* 9.6, rounded */
    CHECK_INT(4, whole.read_width);
    CHECK_STATUS(GP_ELIMIT, gp_store_read_whole(store, 1, &(gp_whole_size){ 8000, 8000, true }, &whole, &e));
    CHECK_CONTAINS(e.message,
                   "images/b.png has 12x5 pixels (height x width); scaling it to 19200x8000 pixels");
    CHECK_STATUS(GP_EINVAL, gp_store_read_whole(store, 2, &(gp_whole_size){ 0, 0, false }, &whole, &e));
    picture_put("images/a.png", NULL, 6, 8);
    CHECK_STATUS(GP_ECORRUPT, gp_store_read_whole(store, 0, &(gp_whole_size){ 0, 0, false }, &whole, &e));
    CHECK_CONTAINS(e.message,
                   "labels/a.png has 6x9 pixels (height x width), but the image that it labels has 6x8");
    gp_whole_deinit(&whole);
    gp_store_close(store);
}

TEST(images_without_labels_are_for_prediction_only)
{
    gp_store *store;
    int32_t label;
    char name[80];
    gp_error e;

    folder_make();
    directory_put("bare");
    picture_put("bare/x.png", NULL, 4, 4);
    picture_put("bare/y.png", NULL, 4, 4);
    REQUIRE_OK(gp_store_open(&store, in_folder("bare"), GP_DATA_GIVEN, &e), e);
    CHECK_INT(2, gp_store_get_info(store)->count);
    CHECK_TEXT("images", gp_store_get_info(store)->kind);
    REQUIRE_OK(gp_store_read(store, &(uint32_t){ 1 }, 1, NULL, &label, &e), e);
    CHECK_INT(-1, label);
    CHECK_TEXT("y.png", gp_store_name(store, 1, name, sizeof(name)));
    gp_store_close(store);
    REQUIRE_OK(gp_store_open(&store, in_folder("bare/x.png"), GP_DATA_GIVEN, &e), e);
    CHECK_INT(1, gp_store_get_info(store)->count);
    gp_store_close(store);
    CHECK_STATUS(GP_EINVAL, gp_store_open(&store, in_folder("bare"), GP_DATA_TRAIN, &e));
    CHECK_CONTAINS(e.message, "has images without labels");
}
