/* Bad images in a training: an error by name, or passed over, counted and named to the user. */
#include "tests/service/commands.h"
#include "tests/data/make_images.h"

static uint8_t noise[30000 * 3 + 64 * 64 * 3];

static void jpeg_put(const char *name, uint32_t width, uint32_t height, uint32_t channels)
{
    make_jpeg(in_root(name), &(made_image){ width, height, channels, .data = noise }, 80);
}

/* Two classes of good images of several kinds; the bad ones come from the tests. */
static void photos_make(void)
{
    char name[64];

    exec_begin();
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)(i * 2654435761u >> 11);
    mkdir(in_root("photos"), 0700);
    mkdir(in_root("photos/cat"), 0700);
    mkdir(in_root("photos/dog"), 0700);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "photos/%s/%02d.jpg", i % 2 == 0 ? "cat" : "dog", i);
        jpeg_put(name, 40, 36, i == 4 ? 4 : i == 6 ? 1 : 3); /* one CMYK, one grey */
    }
    make_png(in_root("photos/dog/deep.png"), &(made_image){ 30, 30, 3, .bits = 16, .data = noise });
}

/* The first `bytes` bytes only. */
static void cut(const char *name, off_t bytes)
{
    if (truncate(in_root(name), bytes) != 0)
        abort();
}

static void bad_ones_put(void)
{
    cut("photos/cat/00.jpg", 300);                               /* truncated */
    cut("photos/dog/01.jpg", 0);                                 /* nothing in it */
    write_file("photos/cat/02.jpg", "<html>not found</html>\n"); /* mislabelled */
    jpeg_put("photos/dog/wide.jpg", 30000, 1, 3);
    /* A PNG of a few bytes that says 60000x60000. */
    make_png(in_root("photos/cat/bomb.png"), &(made_image){ 8, 8, 3, .data = noise });
    FILE *file = fopen(in_root("photos/cat/bomb.png"), "r+");

    if (file == NULL || fseek(file, 16, SEEK_SET) != 0 ||
        fwrite("\0\0\xea\x60\0\0\xea\x60", 1, 8, file) != 8 || fclose(file) != 0)
        abort();
}

#define TRAIN "train", "--network", "lenet", "--data", "../photos", "--batch-size", "8", "--epochs", "2"

TEST(folders_that_are_left_out_are_counted_and_named_when_a_training_begins)
{
    photos_make();
    mkdir(in_root("photos/emu"), 0700);
    RUN_CODE(1, TRAIN, "--image-size", "28,28");
    CHECK_CONTAINS(err, "class emu has no images");
    RUN_CODE(0, TRAIN, "--image-size", "28,28", "--on-bad", "skip");
    CHECK_CONTAINS(err, "photos: 1 folder or image was left out: class emu has no images in ");
    pools_end();
}

TEST(cmyk_grey_and_deep_images_train_as_they_are)
{
    photos_make();
    RUN_CODE(0, TRAIN, "--image-size", "28,28", "--json");
    CHECK_CONTAINS(out, "\"skipped\": 0");
    pools_end();
}

TEST(bad_images_are_an_error_by_name_or_passed_over_counted_and_named)
{
    photos_make();
    bad_ones_put();
    RUN_CODE(1, TRAIN, "--image-size", "28,28");
    CHECK(strstr(err, "photos/cat/") != NULL || strstr(err, "photos/dog/") != NULL);
    RUN_CODE(0, TRAIN, "--image-size", "28,28", "--on-bad", "skip", "--json");
    CHECK_CONTAINS(out, "\"skipped\": 5");
    CHECK_CONTAINS(err, "5 images could not be read and were left out: ");
    CHECK(strstr(err, "cat/00.jpg") != NULL || strstr(err, "dog/01.jpg") != NULL ||
          strstr(err, "cat/02.jpg") != NULL || strstr(err, "wide.jpg") != NULL ||
          strstr(err, "bomb.png") != NULL);
    /* Windows decoded straight from the files find the same. */
    RUN_CODE(0, TRAIN, "--augment", "crop=resized crop-size=28,28", "--on-bad", "skip", "--json");
    CHECK_CONTAINS(err, "could not be read");
    pools_end();
}

/* Root may list anything: the command runs as another user. */
TEST(a_folder_that_may_not_be_listed_is_named)
{
    char command[900], said[4000];
    const char *build = getenv("GP_BUILD_DIR") == NULL ? "." : getenv("GP_BUILD_DIR");

    if (geteuid() == 0 && system("setpriv --reuid=65534 --clear-groups true 2> /dev/null") != 0)
        SKIP("no other user can be taken here");
    photos_make();
    if (chmod(in_root("photos/dog"), 0) != 0 || chmod(in_root("photos/cat"), 0755) != 0 ||
        chmod(in_root("photos"), 0755) != 0 || chmod(pools_root, 0755) != 0)
        abort();
    snprintf(command, sizeof(command), "%s %s/bin/gradpool data show %s > %s 2>&1",
             geteuid() == 0 ? "setpriv --reuid=65534 --clear-groups" : "", build, in_root("photos"),
             in_root("said"));
    CHECK(system(command) != 0);
    slurp(in_root("said"), said, sizeof(said));
    CHECK_CONTAINS(said, "cannot list ");
    CHECK_CONTAINS(said, "photos/dog");
    chmod(in_root("photos/dog"), 0700);
    pools_end();
}
