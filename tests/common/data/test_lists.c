/* Images listed in CSV files and archives; counting, splitting and renumbering of classes. */
#include "tests/gp_test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/data/format/csv.h"
#include "common/data/store/store.h"
#include "common/data/store/subset.h"
#include "tests/common/data/folder.h"
#include "tests/common/data/make_images.h"
#include "tests/common/data/progress_seen.h"

static void shell(const char *format, const char *word)
{
    char command[512];

    snprintf(command, sizeof(command), format, folder, word);
    if (system(command) != 0)
        abort();
}

static void text_put(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");

    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
}

/* Create a grey PNG with 2x2 equal pixels. */
static void tile_put(const char *name, uint8_t grey)
{
    const uint8_t data[4] = { grey, grey, grey, grey };

    shell("cd '%s' && mkdir -p \"$(dirname '%s')\"", name);
    make_png(in_folder(name), &(made_image){ .width = 2, .height = 2, .channels = 1, .data = data });
}

static gp_status open_role(gp_store **store, const char *name, gp_data_role role, gp_error *err)
{
    return gp_store_open(store, in_folder(name), role, err);
}

static void sample_check(const gp_store *store, uint32_t index, int grey, int label)
{
    uint8_t sample[4];
    int32_t got;
    gp_error err;

    REQUIRE_OK(gp_store_read(store, &index, 1, sample, &got, &err), err);
    CHECK_INT(grey, sample[3]);
    CHECK_INT(label, got);
}

/* ---- CSV ---- */

/* Return the rows in a CSV text as "a|b;c|d;", or the error message. */
static const char *rows_of(const char *text)
{
    static char rows[512];
    gp_csv csv;
    gp_csv_row row;
    gp_error err;
    gp_status status;

    rows[0] = '\0';
    gp_csv_init(&csv, "list.csv", gp_strdup(text), strlen(text));
    while ((status = gp_csv_next(&csv, &row, &err)) == GP_OK && row.count > 0)
        for (uint32_t i = 0; i < row.count; i++) {
            strcat(rows, row.fields[i]);
            strcat(rows, i + 1 < row.count ? "|" : ";");
        }
    gp_csv_close(&csv);
    if (status != GP_OK)
        strcpy(rows, err.message);
    return rows;
}

TEST(csv_rows_are_parsed_by_rfc_4180)
{
    CHECK_TEXT("", rows_of(""));
    CHECK_TEXT("", rows_of("\n\r\n"));
    CHECK_TEXT("a|b;c|d;", rows_of("a,b\nc,d"));
    CHECK_TEXT("a|b;c|d;", rows_of("\xef\xbb\xbf"
                                   "a,b\r\n\r\nc,d\r\n"));
    CHECK_TEXT("a, b|say \"x\"|;", rows_of("\"a, b\",\"say \"\"x\"\"\",\n"));
    CHECK_TEXT("two\nlines|;|;", rows_of("\"two\nlines\",\"\"\n,"));
    CHECK_TEXT("\"|x;", rows_of("\"\"\"\",x"));
    CHECK_CONTAINS(rows_of("a,b\n\"c,d\n"), "line 2 has a quote without a closing quote");
    CHECK_CONTAINS(rows_of("\"a\"b,c\n"), "follows the closing quote in line 1");
    CHECK_CONTAINS(rows_of("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17\n"), "more than 16 fields");
}

TEST(csv_paths_are_relative_to_the_file)
{
    gp_store *store;
    gp_error err;
    char name[400], text[600];

    folder_make();
    tile_put("images/a b.png", 10);
    tile_put("images/c.png", 20);
    snprintf(text, sizeof(text),
             "Path,Label\r\nimages/a b.png,9\r\n%s,10\r\nimages/c.png,9\r\nimages/c.png,\r\n",
             in_folder("images/c.png"));
    text_put("list.csv", text);
    REQUIRE_OK(open_role(&store, "list.csv", GP_DATA_TRAIN, &err), err);
    CHECK_TEXT("csv", gp_store_get_info(store)->kind);
    CHECK_INT(4, gp_store_get_info(store)->count);
    CHECK_INT(2, gp_store_get_info(store)->class_count);
    /* numbers are sorted by value: 9 before 10 */
    CHECK_TEXT("9", gp_store_get_info(store)->class_names[0]);
    sample_check(store, 0, 10, 0);
    sample_check(store, 1, 20, 1);
    sample_check(store, 2, 20, 0);
    sample_check(store, 3, 20, -1);
    CHECK_CONTAINS(gp_store_name(store, 0, name, sizeof(name)), "images/a b.png");
    gp_store_close(store);
    CHECK_STATUS(GP_ENOENT, open_role(&store, "list.csv", GP_DATA_TEST, &err));
    text_put("list.csv", "images/c.png,x\nimages/d.png,x\n");
    CHECK_STATUS(GP_ENOENT, open_role(&store, "list.csv", GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "images/d.png");
    text_put("list.csv", "images/c.png,x\nimages/c.png,x,y\n");
    CHECK_STATUS(GP_ECORRUPT, open_role(&store, "list.csv", GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "line 2 has 3 fields");
    text_put("list.csv", "path,label\n");
    CHECK_STATUS(GP_ENOENT, open_role(&store, "list.csv", GP_DATA_TRAIN, &err));
    text_put("list.csv", "\r\n\npath,label\nimages/c.png,9\n");
    REQUIRE_OK(open_role(&store, "list.csv", GP_DATA_TRAIN, &err), err);
    CHECK_INT(1, gp_store_get_info(store)->count);
    gp_store_close(store);
}

/* ---- archives ---- */

TEST(images_are_read_from_all_archive_formats)
{
    static const char *const forms[] = { "ustar", "gnu", "pax", "v7" };
    char deep[300] = "set/train/cat/";
    gp_store *store;
    gp_error err;

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        folder_make();
        tile_put("set/train/cat/1.png", 10);
        tile_put("set/train/dog/x/2.png", 20);
        tile_put("set/test/dog/3.png", 30);
        text_put("set/readme.txt", "x");
        if (i != 0 && i != 3) { /* names longer than the header field */
            memset(deep + 14, 'n', 150);
            strcpy(deep + 164, "/4.png");
            tile_put(deep, 40);
        }
        shell("cd '%s' && tar cf one.tar --sort=name --format=%s set", forms[i]);
        REQUIRE_OK(open_role(&store, "one.tar", GP_DATA_TRAIN, &err), err);
        CHECK_TEXT("tar", gp_store_get_info(store)->kind);
        CHECK_INT(i == 1 || i == 2 ? 3 : 2, gp_store_get_info(store)->count);
        CHECK_TEXT("dog", gp_store_get_info(store)->class_names[1]);
        CHECK_INT(1, gp_store_get_info(store)->passed_over);
        sample_check(store, 0, 10, 0);
        sample_check(store, gp_store_get_info(store)->count - 1, 20, 1);
        if (i == 1 || i == 2)
            sample_check(store, 1, 40, 0);
        gp_store_close(store);
        REQUIRE_OK(open_role(&store, "one.tar", GP_DATA_TEST, &err), err);
        /* classes come from the training part */
        CHECK_INT(2, gp_store_get_info(store)->class_count);
        sample_check(store, 0, 30, 1);
        gp_store_close(store);
    }
}

/* Write a number into the size field in an archive's n-th header, and correct the checksum. */
static void tar_size_put(const char *path, int n, const char *octal)
{
    static char data[1 << 16];
    size_t bytes = file_get(path, data, sizeof(data));
    char *header = data + (size_t)n * 512;
    unsigned sum = 0;

    memcpy(header + 124, octal, 11);
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 7, "%06o", sum);
    file_put(path, data, bytes);
}

TEST(archive_directory_and_link_sizes_are_ignored)
{
    gp_store *store;
    progress_seen seen = { 0 };
    const gp_progress progress = { progress_seen_report, &seen };
    struct stat archive;
    gp_error err;

    folder_make();
    tile_put("set/cat/1.png", 10);
    tile_put("set/dog/2.png", 20);
    shell("cd '%s' && ln set/cat/1.png set/dog/1.png && "
          "tar cf one.tar --format=ustar --no-recursion set/cat set/cat/1.png set/dog/1.png set/dog/2.png%s",
          "");
    tar_size_put(in_folder("one.tar"), 0, "00000001000"); /* directory: reserved space */
    tar_size_put(in_folder("one.tar"), 3, "00000001000"); /* hard link: size of the target */
    REQUIRE_OK(gp_store_open_with(&store, in_folder("one.tar"), GP_DATA_TRAIN,
                                  &(gp_store_options){ .progress = &progress }, &err),
               err);
    REQUIRE(stat(in_folder("one.tar"), &archive) == 0);
    /* progress is in bytes of the archive */
    REQUIRE(progress_seen_find(&seen, "listing", NULL) != NULL);
    CHECK_INT(archive.st_size, progress_seen_find(&seen, "listing", NULL)->count);
    CHECK_INT(3, gp_store_get_info(store)->count);
    CHECK_INT(0, gp_store_get_info(store)->left_out);
    gp_store_close(store);
}

TEST(archive_hard_links_share_contents_but_not_labels)
{
    static const char *const forms[] = { "ustar", "gnu", "pax" };
    char deep[300] = "set/cat/";
    gp_store *store;
    gp_error err;

    memset(deep + 8, 'n', 90); /* path too long for the link field of a header */
    strcpy(deep + 98, "/1.png");
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        folder_make();
        tile_put(i == 0 ? "set/cat/1.png" : deep, 10);
        tile_put("set/dog/2.png", 20);
        shell("cd '%s' && ln set/cat/$(cd set/cat && find . -name 1.png) set/dog/1.png && ln -s 2.png "
              "set/dog/3.png && "
              "tar cf one.tar --sort=name --format=%s ./set",
              forms[i]);
        REQUIRE_OK(open_role(&store, "one.tar", GP_DATA_TRAIN, &err), err);
        CHECK_INT(3, gp_store_get_info(store)->count);
        sample_check(store, 0, 10, 0);
        sample_check(store, 1, 20, 1);
        sample_check(store, 2, 10, 1); /* links follow the members */
        CHECK_INT(1, gp_store_get_info(store)->left_out);
        CHECK_CONTAINS(gp_store_get_info(store)->left_out_first,
                       "set/dog/3.png is a link to 2.png; symbolic links in archives are not supported");
        gp_store_close(store);
    }
    folder_make();
    tile_put("set/cat/1.png", 10);
    text_put("set/blob", "x");
    shell("cd '%s' && ln set/blob set/cat/2.png && tar cf one.tar --sort=name set%s", "");
    REQUIRE_OK(open_role(&store, "one.tar", GP_DATA_TRAIN, &err), err);
    CHECK_INT(1, gp_store_get_info(store)->count);
    CHECK_INT(1, gp_store_get_info(store)->left_out);
    CHECK_CONTAINS(gp_store_get_info(store)->left_out_first,
                   "set/cat/2.png is a link to set/blob, which is not an image in the archive");
    gp_store_close(store);
}

/* Extracting the archive has the same result. */
TEST(appended_members_replace_hard_links_and_their_targets_in_order)
{
    gp_store *store;
    gp_error err;

    folder_make();
    tile_put("set/cat/1.png", 10);
    tile_put("set/dog/2.png", 20);
    shell("cd '%s' && ln set/cat/1.png set/dog/3.png && ln set/dog/2.png set/cat/4.png && "
          "tar cf one.tar --sort=name set%s",
          "");
    shell("cd '%s' && rm -r set%s", "");
    tile_put("set/cat/1.png", 30);
    tile_put("set/cat/4.png", 40);
    tile_put("set/dog/2.png", 50);
    shell("cd '%s' && tar rf one.tar set/cat/1.png && tar rf one.tar set/cat/4.png set/dog/2.png%s", "");
    REQUIRE_OK(open_role(&store, "one.tar", GP_DATA_TRAIN, &err), err);
    CHECK_INT(4, gp_store_get_info(store)->count);
    sample_check(store, 0, 30, 0);
    sample_check(store, 1, 40, 0); /* no longer a link */
    sample_check(store, 2, 50, 1);
    sample_check(store, 3, 10, 1); /* a link to the first set/cat/1.png */
    gp_store_close(store);
}

/* An archive of a tree has the same classes and images as the tree. */
TEST(archives_have_the_classes_and_images_of_the_tree)
{
    static const char *const sources[] = { "set", "one.tar" };
    gp_store *store;
    gp_error err;

    folder_make();
    tile_put("set/2/1.png", 20);
    tile_put("set/10/1.png", 99); /* replaced in the archive */
    shell("cd '%s' && tar cf one.tar set%s", "");
    tile_put("set/10/1.png", 10);
    tile_put("set/2/.thumbs/1.png", 30);
    tile_put("set/.trash/1.png", 40);
    shell("cd '%s' && tar rf one.tar set/10/1.png set/2/.thumbs set/.trash%s", "");
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        REQUIRE_OK(open_role(&store, sources[i], GP_DATA_TRAIN, &err), err);
        CHECK_INT(2, gp_store_get_info(store)->class_count);
        CHECK_TEXT("10", gp_store_get_info(store)->class_names[0]);
        CHECK_INT(2, gp_store_get_info(store)->count);
        for (uint32_t k = 0; k < gp_store_get_info(store)->count; k++) {
            uint8_t sample[4];
            int32_t label;

            REQUIRE_OK(gp_store_read(store, &k, 1, sample, &label, &err), err);
            CHECK_INT(label == 0 ? 10 : 20, sample[0]);
        }
        gp_store_close(store);
    }
    shell("cd '%s' && mv set .set && tar cf hidden.tar .set%s", ""); /* the root may be hidden */
    REQUIRE_OK(open_role(&store, "hidden.tar", GP_DATA_TRAIN, &err), err);
    CHECK_INT(2, gp_store_get_info(store)->count);
    gp_store_close(store);
}

TEST(archives_may_have_a_test_part_without_classes)
{
    gp_store *store;
    gp_error err;

    folder_make();
    tile_put("set/train/cat/1.png", 10);
    tile_put("set/train/dog/1.png", 20);
    tile_put("set/test/1.png", 30);
    shell("cd '%s' && tar cf one.tar set%s", "");
    REQUIRE_OK(open_role(&store, "one.tar", GP_DATA_TRAIN, &err), err);
    CHECK_INT(2, gp_store_get_info(store)->count);
    CHECK_TEXT("cat", gp_store_get_info(store)->class_names[0]);
    gp_store_close(store);
    CHECK_STATUS(GP_ENOENT, open_role(&store, "one.tar", GP_DATA_TEST, &err));
    CHECK_STATUS(GP_ENOENT, open_role(&store, "one.tar", GP_DATA_GIVEN, &err));
    tile_put("set/unlabeled/1.png", 40);
    shell("cd '%s' && tar cf one.tar set%s", "");
    CHECK_STATUS(GP_ECORRUPT, open_role(&store, "one.tar", GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "and also unlabeled/1.png, which is in no part");
}

TEST(sparse_images_in_archives_are_reported)
{
    static const char *const forms[] = { "gnu", "pax" };
    gp_store *store;
    gp_error err;

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        folder_make();
        tile_put("set/cat/1.png", 10);
        tile_put("set/cat/3.png", 30);
        text_put("set/cat/2.png", "x");
        shell("cd '%s' && for at in 1 2 3 4 5 6 7 8; do "
              "printf x | dd of=set/cat/2.png bs=1M seek=$at conv=notrunc status=none; done && "
              "tar cf one.tar --sparse --sort=name --format=%s set",
              forms[i]);
        REQUIRE_OK(open_role(&store, "one.tar", GP_DATA_TRAIN, &err), err);
        CHECK_INT(2, gp_store_get_info(store)->count);
        sample_check(store, 1, 30, 0);
        CHECK_INT(1, gp_store_get_info(store)->left_out);
        CHECK_CONTAINS(gp_store_get_info(store)->left_out_first,
                       "set/cat/2.png is sparse, which is not supported; write the archive without --sparse");
        gp_store_close(store);
    }
}

TEST(a_directory_of_archives_is_one_data_set)
{
    gp_store *store;
    gp_error err;

    folder_make();
    tile_put("a/cat/1.png", 10);
    tile_put("b/ape/1.png", 20);
    shell("cd '%s' && mkdir all && tar cf all/1.tar -C a ./cat && tar cf all/0.tar -C b ape%s", "");
    REQUIRE_OK(open_role(&store, "all", GP_DATA_GIVEN, &err), err);
    CHECK_TEXT("ape", gp_store_get_info(store)->class_names[0]);
    sample_check(store, 0, 20, 0);
    sample_check(store, 1, 10, 1);
    gp_store_close(store);
    CHECK_STATUS(GP_ENOENT, open_role(&store, "all", GP_DATA_TEST, &err));
    shell("cd '%s' && gzip -c all/1.tar > z.tar && head -c 700 all/1.tar > cut.tar && "
          "(head -c 600 all/1.tar; printf x; tail -c +602 all/1.tar) > bad.tar%s",
          "");
    CHECK_STATUS(GP_EUNSUPPORTED, open_role(&store, "z.tar", GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "compressed");
    CHECK_STATUS(GP_ECORRUPT, open_role(&store, "cut.tar", GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "cut.tar");
    CHECK_STATUS(GP_ECORRUPT, open_role(&store, "bad.tar", GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "checksum");
    shell("cd '%s' && tar cf flat.tar -C a/cat 1.png%s", "");
    CHECK_STATUS(GP_ECORRUPT, open_role(&store, "flat.tar", GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "not in a class folder");
}

/* ---- parts ---- */

static gp_store *twenty_open(void)
{
    static uint8_t samples[20];
    static int32_t labels[20];
    gp_store *store = NULL;
    gp_error err;

    for (int i = 0; i < 20; i++) {
        samples[i] = (uint8_t)(i * 3);
        labels[i] = i < 10 ? 0 : i < 19 ? 1 : -1;
    }
    if (gp_store_open_arrays(&store,
                             &(gp_store_info){ .source = "memory",
                                               .count = 20,
                                               .channels = 1,
                                               .height = 1,
                                               .width = 1,
                                               .dtype = GP_U8,
                                               .class_count = 2 },
                             samples, labels, &err) != GP_OK)
        abort();
    return store;
}

TEST(a_store_is_split_per_class_by_seed)
{
    static const double share[] = { 0.8 }, counts[] = { 2, 3 }, rare[] = { 0.01 };
    gp_store *store = twenty_open();
    uint8_t parts[20], again[20];
    uint64_t counted[3];
    int of[3][3] = { { 0 } };
    gp_error err;

    REQUIRE_OK(gp_store_count_within(store, counted, NULL, NULL, &err), err);
    CHECK_INT(10, counted[0]);
    CHECK_INT(9, counted[1]);
    CHECK_INT(1, counted[2]);
    REQUIRE_OK(gp_store_split(store, share, 2, 7, parts, &err), err);
    for (int i = 0; i < 20; i++)
        of[parts[i]][i < 10 ? 0 : i < 19 ? 1 : 2]++;
    CHECK_INT(8, of[0][0]);
    CHECK_INT(2, of[1][0]);
    CHECK_INT(7, of[0][1]);
    CHECK_INT(2, of[1][1]);
    REQUIRE_OK(gp_store_split(store, share, 2, 7, again, &err), err);
    CHECK(memcmp(parts, again, sizeof(parts)) == 0);
    REQUIRE_OK(gp_store_split(store, share, 2, 8, again, &err), err);
    CHECK(memcmp(parts, again, sizeof(parts)) != 0);
    /* sample 19 has no class */
    CHECK_STATUS(GP_EINVAL, gp_store_split(store, counts, 3, 7, parts, &err));
    CHECK_CONTAINS(err.message, "(none) has 1 samples, but 2");
    REQUIRE_OK(gp_store_split(store, rare, 2, 7, parts, &err), err);
    memset(of, 0, sizeof(of));
    for (int i = 0; i < 20; i++)
        of[parts[i]][i < 10 ? 0 : i < 19 ? 1 : 2]++;
    CHECK_INT(1, of[0][0]); /* a class with two samples gets at least one in each part */
    CHECK_INT(1, of[0][1]);
    CHECK_STATUS(GP_EINVAL, gp_store_split(store, (const double[]){ 0.8, 0.3 }, 3, 7, parts, &err));
    CHECK_STATUS(GP_EINVAL, gp_store_split(store, (const double[]){ 1.5 }, 2, 7, parts, &err));
    gp_store_close(store);
}

TEST(archives_with_label_images_are_read)
{
    /* with a common root, and without */
    static const char *const members[] = { "set", "-C set ." };
    gp_store *store;
    gp_error err;
    uint8_t sample[4];
    int32_t labels[4];

    folder_make();
    tile_put("set/train/b.png", 10);
    tile_put("set/train/a.png", 20);
    tile_put("set/trainannot/a.png", 1);
    tile_put("set/trainannot/b.png", 0);
    tile_put("set/val/c.png", 30);
    tile_put("set/valannot/c.png", 2);
    tile_put("set/test/d.png", 40);
    tile_put("set/testannot/d.png", 0);
    text_put("set/classes.csv", "sky\nroad\nvoid\n");
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        shell("cd '%s' && tar cf pixels.tar %s", members[i]);
        REQUIRE_OK(open_role(&store, "pixels.tar", GP_DATA_TRAIN, &err), err);
        CHECK_TEXT("pixels", gp_store_get_info(store)->kind);
        CHECK_INT(2, gp_store_get_info(store)->count);
        CHECK_INT(2, gp_store_get_info(store)->class_count);
        for (uint32_t index = 0; index < 2; index++) {
            REQUIRE_OK(gp_store_read(store, &index, 1, sample, labels, &err), err);
            CHECK_INT(sample[0] == 20, labels[0]); /* a is road, b is sky */
        }
        gp_store_close(store);
        REQUIRE_OK(open_role(&store, "pixels.tar", GP_DATA_TEST, &err), err);
        REQUIRE_OK(gp_store_read(store, &(uint32_t){ 0 }, 1, sample, labels, &err), err);
        CHECK_INT(30, sample[0]);
        CHECK_INT(-1, labels[0]);
        gp_store_close(store);
        REQUIRE_OK(open_role(&store, "pixels.tar", GP_DATA_GIVEN, &err), err);
        REQUIRE_OK(gp_store_read(store, &(uint32_t){ 0 }, 1, sample, labels, &err), err);
        CHECK_INT(40, sample[0]);
        gp_store_close(store);
    }
    text_put("set/classes.csv", "road\nsky\nvoid\n");
    shell("cd '%s' && tar cf pixels.tar set%s", "");
    text_put("set/classes.csv", "sky\nroad\nvoid\n");
    shell("cd '%s' && tar rf pixels.tar set/classes.csv%s", "");
    REQUIRE_OK(open_role(&store, "pixels.tar", GP_DATA_TRAIN, &err), err);
    CHECK_TEXT("sky", gp_store_get_info(store)->class_names[0]);
    gp_store_close(store);
    shell("cd '%s' && rm set/classes.csv pixels.tar && tar cf pixels.tar set && tar cf camvid.tar set%s", "");
    CHECK_STATUS(GP_ENOENT, open_role(&store, "pixels.tar", GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "but no classes.csv");
    REQUIRE_OK(open_role(&store, "camvid.tar", GP_DATA_TRAIN, &err), err);
    CHECK_TEXT("Sky", gp_store_get_info(store)->class_names[0]);
    gp_store_close(store);
    shell("cd '%s' && rm set/trainannot/b.png && tar cf camvid.tar set%s", "");
    CHECK_STATUS(GP_ENOENT, open_role(&store, "camvid.tar", GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "set/train/b.png has no label image");
}

TEST(labels_are_renumbered_by_the_model_classes)
{
    static const char *const model[] = { "dog", "ape", "cat" }, *const other[] = { "dog", "ape" },
                             *const numbers[] = { "0", "1", "2" };
    gp_store_options options = { .class_names = model, .class_count = 3 };
    gp_store *store;
    gp_error err;

    folder_make();
    tile_put("data/cat/1.png", 10);
    tile_put("data/dog/1.png", 20);
    REQUIRE_OK(gp_store_open_with(&store, in_folder("data"), GP_DATA_TRAIN, &options, &err), err);
    CHECK_INT(3, gp_store_get_info(store)->class_count);
    CHECK_TEXT("ape", gp_store_get_info(store)->class_names[1]);
    sample_check(store, 0, 10, 2);
    sample_check(store, 1, 20, 0);
    gp_store_close(store);
    options = (gp_store_options){ .class_names = other, .class_count = 2 };
    CHECK_STATUS(GP_EINVAL, gp_store_open_with(&store, in_folder("data"), GP_DATA_TRAIN, &options, &err));
    CHECK_CONTAINS(err.message, "lacks: cat; the model has dog, ape; use data with these classes only");

    /* Outputs without names are matched by number if the counts agree, and rejected otherwise. */
    for (int named = 0; named < 2; named++) {
        options = (gp_store_options){ .class_names = named ? numbers : NULL, .class_count = 2 };
        REQUIRE_OK(gp_store_open_with(&store, in_folder("data"), GP_DATA_TRAIN, &options, &err), err);
        CHECK(gp_store_get_info(store)->matched_by_number);
        CHECK_TEXT("cat", gp_store_get_info(store)->class_names[0]);
        sample_check(store, 1, 20, 1);
        gp_store_close(store);
        options.class_count = 3;
        CHECK_STATUS(GP_EINVAL, gp_store_open_with(&store, in_folder("data"), GP_DATA_TRAIN, &options, &err));
        CHECK_CONTAINS(err.message, "has 2 classes (cat, dog) and the model 3 outputs without names");
    }

    /* Labels without names are output numbers. */
    options = (gp_store_options){ .class_names = model, .class_count = 3 };
    REQUIRE_OK(gp_store_open_with(&store, "synthetic:4x4x1:2:8", GP_DATA_TRAIN, &options, &err), err);
    CHECK_INT(3, gp_store_get_info(store)->class_count);
    gp_store_close(store);
    CHECK_STATUS(GP_EINVAL, gp_store_open_with(&store, "synthetic:4x4x1:4:8", GP_DATA_TRAIN, &options, &err));
    CHECK_CONTAINS(err.message, "range from 0 to 3, but the model has 3 classes");
}

/* The folders 0 to 10 have the order 0, 1, 10, 2 ...; a list and arrays have 0, 1, 2 ... */
TEST(classes_named_by_numbers_are_matched_by_value)
{
    static const char *const model[] = { "0", "1", "10", "2", "3", "4", "5", "6", "7", "8", "9" };
    char name[40], list[400] = "";
    gp_store_options options = { .class_names = model, .class_count = 11 };
    gp_store *store;
    gp_error err;

    folder_make();
    for (int i = 0; i <= 10; i++) {
        snprintf(name, sizeof(name), "data/%d/1.png", i);
        tile_put(name, (uint8_t)(10 * i));
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s,%d\n", name, i);
    }
    text_put("list.csv", list);

    /* a model that the folders trained, and the list */
    REQUIRE_OK(gp_store_open_with(&store, in_folder("list.csv"), GP_DATA_TRAIN, &options, &err), err);
    sample_check(store, 10, 100, 2);
    sample_check(store, 2, 20, 3);
    gp_store_close(store);

    /* a model without names, and the folders */
    options.class_names = NULL;
    REQUIRE_OK(gp_store_open_with(&store, in_folder("data"), GP_DATA_TRAIN, &options, &err), err);
    CHECK_TEXT("10", gp_store_get_info(store)->class_names[10]);
    sample_check(store, 2, 100, 10);
    sample_check(store, 3, 20, 2);
    gp_store_close(store);
}
