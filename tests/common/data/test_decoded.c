/* Decoded samples cached on disk: IDX files, drawn digits, and damaged entries. */
#include "tests/gp_test.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/data/cache/decoded.h"
#include "common/data/format/idx.h"
#include "common/data/store/store.h"
#include "tests/common/data/folder.h"

enum { BYTES = 5000 };

static int decode_count;

/* Set byte i to i + *context modulo 256. Fail if *context is negative. */
static gp_status decode(void *context, void *to, size_t bytes, gp_error *err)
{
    const int *first = context;

    decode_count++;
    if (*first < 0)
        return gp_fail(err, GP_ECORRUPT, "the source is damaged");
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)to)[i] = (uint8_t)(i + (size_t)*first);
    return GP_OK;
}

static void cache_begin(void)
{
    folder_make();
    setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
}

static void cache_end(void)
{
    unsetenv("XDG_CACHE_HOME");
}

/* Get the data for a key. Check the data, and whether it was decoded and mapped. */
static void get_check(const char *key, int first, bool decoded, bool mapped)
{
    int before = decode_count;
    gp_decoded got;
    gp_error err;

    REQUIRE_OK(gp_decoded_get(&got, key, BYTES, decode, &first, &err), err);
    CHECK_INT(BYTES, got.bytes);
    CHECK_INT((uint8_t)(BYTES - 1 + first), got.data[BYTES - 1]);
    CHECK_INT((uint8_t)first, got.data[0]);
    CHECK_INT(decoded, decode_count - before);
    CHECK_INT(mapped, got.map != NULL);
    CHECK_INT(decoded, got.decode_ns > 0);
    gp_decoded_deinit(&got);
}

/* Run a shell command with the path of the only entry as $1. */
static void entry_do(const char *command)
{
    char text[400];

    snprintf(text, sizeof(text), "set -- '%s'/cache/gradpool/decoded/*/*; [ $# = 1 ] && %s", folder, command);
    REQUIRE(system(text) == 0);
}

TEST(data_is_decoded_once_per_key)
{
    cache_begin();
    get_check("one", 7, true, true);
    get_check("one", 7, false, true);
    get_check("two", 9, true, true);
    get_check("one", 7, false, true);
    cache_end();
}

TEST(a_damaged_entry_is_decoded_again)
{
    static const char *const damages[] = {
        "printf x | dd of=\"$1\" bs=1 seek=3000 conv=notrunc 2>/dev/null", /* damage the data */
        "printf x | dd of=\"$1\" bs=1 seek=2 conv=notrunc 2>/dev/null",    /* damage the header */
        "truncate -s -1 \"$1\"",
        "truncate -s 0 \"$1\"",
    };

    cache_begin();
    get_check("key", 7, true, true);
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        entry_do(damages[i]);
        get_check("key", 7, true, true);
        get_check("key", 7, false, true);
    }
    cache_end();
}

TEST(a_decoder_error_leaves_no_entry)
{
    int damaged = -1;
    gp_decoded got;
    gp_error err;

    cache_begin();
    CHECK_STATUS(GP_ECORRUPT, gp_decoded_get(&got, "key", BYTES, decode, &damaged, &err));
    CHECK_CONTAINS(err.message, "the source is damaged");
    CHECK(access(in_folder("cache/gradpool/decoded"), F_OK) == 0);
    get_check("key", 7, true, true);
    entry_do("true"); /* exactly one file: the abandoned one was removed */
    cache_end();
}

TEST(a_mapped_entry_is_not_locked)
{
    int first = 7;
    gp_decoded got;
    gp_error err;

    cache_begin();
    REQUIRE_OK(gp_decoded_get(&got, "key", BYTES, decode, &first, &err), err);
    /* Another process waits for this lock if both request the entry at once. */
    entry_do("flock -n \"$1\" true");
    gp_decoded_deinit(&got);
    cache_end();
}

TEST(uncacheable_data_is_decoded_to_memory)
{
    const struct rlimit small = { 1000, RLIM_INFINITY };
    struct rlimit before;

    cache_begin();
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* not a directory */
    get_check("key", 7, true, false);
    get_check("key", 7, true, false);
    setenv("XDG_CACHE_HOME", in_folder("cache"), 1);
    signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0 && setrlimit(RLIMIT_FSIZE, &small) == 0);
    get_check("key", 7, true, false); /* simulates a full disk */
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    get_check("key", 7, true, true);
    cache_end();
}

/* ---- sources ---- */

/* Write IDX files with `count` images, all pixels equal to `grey`. */
static void idx_write(uint32_t count, uint8_t grey)
{
    uint8_t *pixels = malloc((size_t)count * 784), *classes = calloc(count, 1);
    gp_idx images = { .rank = 3, .dim = { count, 28, 28 }, .bytes = (size_t)count * 784, .data = pixels };
    gp_idx labels = { .rank = 1, .dim = { count }, .bytes = count, .data = classes };
    gp_error err;

    memset(pixels, grey, images.bytes);
    REQUIRE_OK(gp_idx_write(in_folder("train-images-idx3-ubyte.gz"), &images, true, NULL, &err), err);
    REQUIRE_OK(gp_idx_write(in_folder("train-labels-idx1-ubyte.gz"), &labels, true, NULL, &err), err);
    free(pixels);
    free(classes);
}

/* Set the images file's modification time. */
static void idx_date(const char *date)
{
    char command[200];

    snprintf(command, sizeof(command), "touch -d '%s' '%s'/train-images-idx3-ubyte.gz", date, folder);
    REQUIRE(system(command) == 0);
}

/* Open a store. Check the last pixel of a sample, and whether the open decoded and cached the
 * samples. */
static void store_check(const char *source, int grey, bool decoded)
{
    gp_store *store;
    uint8_t sample[784];
    int32_t label;
    gp_error err;

    REQUIRE_OK(gp_store_open(&store, source, GP_DATA_TRAIN, &err), err);
    CHECK_INT(decoded, gp_store_get_info(store)->decode_ns > 0);
    CHECK_INT(decoded, gp_store_get_info(store)->decode_cached);
    REQUIRE_OK(gp_store_read(store, (const uint32_t[]){ 1399 }, 1, sample, &label, &err), err);
    CHECK_INT(grey, sample[783]);
    gp_store_close(store);
}

TEST(gzipped_idx_files_are_unpacked_once_per_change)
{
    cache_begin();
    idx_write(1400, 10);
    store_check(folder, 10, false); /* modified just now: not cached */
    idx_date("2020-02-02 02:02:02.5");
    store_check(folder, 10, true);
    store_check(folder, 10, false);
    idx_write(1400, 20);
    idx_date("2020-02-02 02:02:02.6");
    store_check(folder, 20, true);
    store_check(folder, 20, false);
    cache_end();
}

TEST(digits_are_drawn_once)
{
    gp_store *drawn, *cached;
    uint8_t sample[2][784];
    int32_t label[2];
    gp_error err;

    cache_begin();
    REQUIRE_OK(gp_store_open(&drawn, "digits:1500", GP_DATA_TRAIN, &err), err);
    REQUIRE_OK(gp_store_open(&cached, "digits:1500", GP_DATA_TRAIN, &err), err);
    CHECK(gp_store_get_info(drawn)->decode_cached);
    CHECK_INT(0, gp_store_get_info(cached)->decode_ns);
    CHECK(gp_store_get_info(drawn)->fingerprint == gp_store_get_info(cached)->fingerprint);
    REQUIRE_OK(gp_store_read(drawn, (const uint32_t[]){ 1499 }, 1, sample[0], &label[0], &err), err);
    REQUIRE_OK(gp_store_read(cached, (const uint32_t[]){ 1499 }, 1, sample[1], &label[1], &err), err);
    CHECK(memcmp(sample[0], sample[1], 784) == 0);
    CHECK_INT(9, label[1]);
    gp_store_close(drawn);
    gp_store_close(cached);
    cache_end();
}
