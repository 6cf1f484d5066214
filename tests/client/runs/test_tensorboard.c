/* test_tensorboard.c: framing of the event files, and write errors. read_events.py compares the
 * contents with TensorBoard's own reader. */
#include "client/runs/tensorboard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/crc32c.h"
#include "tests/gp_test.h"

enum { FILE_MAX = 4 << 20 };

static char folder[64];
static uint8_t content[FILE_MAX];

static void folder_make(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gp-test-events-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
}

/* Read the only file of the folder; return its size. Removes file and folder. */
static size_t take_file(void)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    size_t size = 0, files = 0;

    CHECK(dir != NULL);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char path[400];
        int fd;
        ssize_t got;

        if (entry->d_name[0] == '.')
            continue;
        files++;
        CHECK(strncmp(entry->d_name, "events.out.tfevents.", 20) == 0);
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        fd = open(path, O_RDONLY);
        got = read(fd, content, sizeof(content));
        close(fd);
        CHECK(got >= 0);
        size = got > 0 ? (size_t)got : 0;
        unlink(path);
    }
    if (dir != NULL)
        closedir(dir);
    CHECK_INT(1, files);
    rmdir(folder);
    return size;
}

/* Readers take the files of a folder in the order of their names. */
TEST(file_of_a_later_attempt_is_read_after_the_earlier_ones)
{
    const char *const earlier = "events.out.tfevents.4102444800.z.1.0"; /* the year 2100 */
    char path[400], names[2][300] = { "", "" };
    tensorboard *board;
    struct dirent *entry;
    gp_error err;
    int problem;
    DIR *dir;

    folder_make();
    snprintf(path, sizeof(path), "%s/%s", folder, earlier);
    fclose(fopen(path, "w"));
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(tensorboard_open(&board, folder, &err), err);
        tensorboard_close(board, &problem);
    }
    dir = opendir(folder);
    REQUIRE(dir != NULL);
    for (int i = 0; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, earlier) != 0 && i < 2)
            snprintf(names[i++], sizeof(names[0]), "%s", entry->d_name);
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(dir);
    rmdir(folder);
    for (int i = 0; i < 2; i++)
        CHECK(strcmp(names[i], earlier) > 0);
    CHECK(strncmp(names[0], names[1], strlen("events.out.tfevents.4102444801.")) != 0);
}

static uint64_t little_endian(const uint8_t *data, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = bytes; i > 0; i--)
        value = value << 8 | data[i - 1];
    return value;
}

static uint32_t masked(const uint8_t *data, size_t bytes)
{
    const uint32_t crc = gp_crc32c(0, data, bytes);

    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/* Check the framing of all records; return their number. */
static size_t count_records(size_t size)
{
    size_t at = 0, count = 0;

    while (at + 16 <= size) {
        const uint64_t length = little_endian(content + at, 8);

        CHECK_INT(masked(content + at, 8), little_endian(content + at + 8, 4));
        if (length > size - at - 16) {
            CHECK(length <= size - at - 16);
            break;
        }
        CHECK_INT(masked(content + at + 12, length), little_endian(content + at + 12 + length, 4));
        at += 16 + length;
        count++;
    }
    CHECK_INT(size, at);
    return count;
}

TEST(scalar_has_the_bytes_of_the_format)
{
    /* Event { wall_time: 2.0 step: 300 summary { value { tag: "a" simple_value: 0.5 } } }; nested
     * lengths are varints of four bytes */
    static const uint8_t expected[] = { 0x09, 0,    0,    0,    0,    0, 0, 0,   0x40, /* wall_time */
                                        0x10, 0xac, 0x02,                              /* step */
                                        0x2a, 0x8d, 0x80, 0x80, 0x00,                  /* summary: 13 bytes */
                                        0x0a, 0x88, 0x80, 0x80, 0x00,                  /* value: 8 bytes */
                                        0x0a, 0x01, 'a',  0x15, 0,    0, 0, 0x3f };    /* tag, simple_value */
    tensorboard *board;
    gp_error err;
    int problem;

    folder_make();
    CHECK_INT(GP_OK, tensorboard_open(&board, folder, &err));
    tensorboard_scalar(board, "a", 300, 2.0, 0.5);
    CHECK_INT(0, tensorboard_close(board, &problem));

    const size_t size = take_file(), first = 16 + little_endian(content, 8);

    CHECK_INT(2, count_records(size));
    CHECK_INT(sizeof(expected), little_endian(content + first, 8));
    CHECK(memcmp(content + first + 12, expected, sizeof(expected)) == 0);
}

TEST(long_tags_and_texts_are_cut)
{
    char *text = gp_calloc(1, 3 * TENSORBOARD_TEXT_MAX);
    tensorboard *board;
    gp_error err;
    int problem;

    memset(text, 'x', 3 * TENSORBOARD_TEXT_MAX - 1);
    folder_make();
    CHECK_INT(GP_OK, tensorboard_open(&board, folder, &err));
    tensorboard_text(board, text, 1, 2.0, text);
    tensorboard_scalar(board, text, 1, 2.0, 1);
    CHECK_INT(0, tensorboard_close(board, &problem));

    const size_t size = take_file();

    CHECK_INT(3, count_records(size));
    CHECK(size > TENSORBOARD_TEXT_MAX && size < TENSORBOARD_TEXT_MAX + 1000);
    gp_free(text);
}

/* Trainings in folders whose paths differ only at the end are no repetitions. */
TEST(group_is_whole_and_texts_are_utf8)
{
    char group[300], tag[TENSORBOARD_TAG_MAX + 2];
    tensorboard *board;
    gp_error err;
    int problem;

    memset(group, 'g', sizeof(group) - 1);
    strcpy(group + sizeof(group) - 3, "17");
    memset(tag, 't', TENSORBOARD_TAG_MAX - 1);
    strcpy(tag + TENSORBOARD_TAG_MAX - 1, "\u00e9");
    folder_make();
    CHECK_INT(GP_OK, tensorboard_open(&board, folder, &err));
    tensorboard_hparams(board, group, 2.0, NULL, 0, NULL, 0);
    tensorboard_scalar(board, tag, 1, 2.0, 1);
    tensorboard_scalar(board, "caf\xe9", 1, 2.0, 1);
    CHECK_INT(0, tensorboard_close(board, &problem));

    const size_t size = take_file();

    CHECK(memmem(content, size, group, strlen(group)) != NULL);
    CHECK(memmem(content, size, "tt?", 3) != NULL);
    CHECK(memmem(content, size, "caf?", 4) != NULL);
}

TEST(full_disk_loses_whole_events_only)
{
    const struct rlimit unlimited = { .rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY };
    struct rlimit before, limit;
    tensorboard *board;
    gp_error err;
    int problem = 0;

    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    limit = (struct rlimit){ .rlim_cur = 100, .rlim_max = before.rlim_max };
    signal(SIGXFSZ, SIG_IGN);
    folder_make();
    CHECK_INT(GP_OK, tensorboard_open(&board, folder, &err));
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (int step = 1; step <= 3; step++)
        tensorboard_scalar(board, "loss/train", step, 2.0, 1);
    tensorboard_flush(board); /* fails after a part of the events */
    CHECK(setrlimit(RLIMIT_FSIZE, before.rlim_cur == RLIM_INFINITY ? &unlimited : &before) == 0);
    tensorboard_scalar(board, "loss/train", 4, 2.0, 1);
    CHECK_INT(3, tensorboard_close(board, &problem));
    CHECK_INT(EFBIG, problem);
    CHECK_INT(2, count_records(take_file())); /* the version and step 4 */
}

TEST(files_of_one_second_and_process_have_different_names)
{
    tensorboard *boards[2];
    gp_error err;
    int problem;
    DIR *dir;
    struct dirent *entry;
    size_t files = 0;

    folder_make();
    for (int i = 0; i < 2; i++)
        CHECK_INT(GP_OK, tensorboard_open(&boards[i], folder, &err));
    for (int i = 0; i < 2; i++)
        tensorboard_close(boards[i], &problem);
    dir = opendir(folder);
    while ((entry = readdir(dir)) != NULL) {
        char path[400];

        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        files += entry->d_name[0] == 'e' && unlink(path) == 0;
    }
    closedir(dir);
    CHECK_INT(2, files);
    rmdir(folder);
}

TEST(missing_folder_is_an_error)
{
    tensorboard *board;
    gp_error err;

    CHECK_INT(GP_EIO, tensorboard_open(&board, "/tmp/gp-test-events-missing", &err));
    CHECK(strstr(err.message, "No such file") != NULL);
    CHECK_INT(0, tensorboard_close(NULL, NULL));
}
