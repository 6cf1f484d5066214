/* Shared arrays in sealed memory files: contents, access, and forged files. */
#include "tests/gp_test.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/data/source/shared_arrays.h"
#include "common/data/source/sources.h"

enum { COUNT = 7, HEIGHT = 3, WIDTH = 4, PIXELS = HEIGHT * WIDTH };

static gp_store_info info_of(gp_dtype dtype)
{
    static const char *const names[] = { "cat", "dog", "axolotl" };

    return (gp_store_info){ .count = COUNT,
                            .channels = 1,
                            .height = HEIGHT,
                            .width = WIDTH,
                            .dtype = dtype,
                            .class_count = 3,
                            .class_names = names,
                            .targets[0] = { .dtype = GP_I32 } };
}

TEST(shared_arrays_remain_readable_after_the_owner_frees_them)
{
    static const int32_t labels[COUNT] = { 0, 1, 2, 2, -1, 0, 1 };
    uint8_t samples[COUNT * PIXELS], got[PIXELS];
    char source[GP_SHARED_ARRAYS_SOURCE_BYTES];
    gp_store_info info = info_of(GP_U8);
    const uint32_t index = 3;
    gp_store *store;
    int32_t label;
    gp_error err;
    int fd;

    for (size_t i = 0; i < sizeof(samples); i++)
        samples[i] = (uint8_t)(i * 7);
    REQUIRE_OK(gp_shared_arrays_make(&fd, source, &info, samples, labels, &err), err);
    CHECK(gp_shared_arrays_is(source));
    REQUIRE_OK(gp_store_open(&store, source, GP_DATA_TRAIN, &err), err);
    CHECK_STATUS(GP_ENOENT, gp_store_open(&store, source, GP_DATA_TEST, &err));
    close(fd);
    CHECK_STATUS(GP_ENOENT, gp_store_open(&(gp_store *){ NULL }, source, GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "has exited or freed them");
    REQUIRE_OK(gp_store_read(store, &index, 1, got, &label, &err), err);
    CHECK(memcmp(samples + 3 * PIXELS, got, PIXELS) == 0);
    CHECK_INT(2, label);
    CHECK_TEXT("axolotl", gp_store_get_info(store)->class_names[2]);
    CHECK_INT(COUNT, gp_store_get_info(store)->count);
    gp_store_close(store);
}

TEST(arrays_of_a_non_dumpable_process_can_be_opened)
{
    static const int32_t labels[COUNT] = { 0 };
    uint8_t samples[COUNT * PIXELS] = { 9 };
    char source[GP_SHARED_ARRAYS_SOURCE_BYTES], other[GP_SHARED_ARRAYS_SOURCE_BYTES];
    gp_store_info info = info_of(GP_U8);
    gp_store *stores[20];
    gp_lender *lender;
    unsigned pid, descriptor;
    uint64_t token;
    gp_error err;
    int fd, served[2], state;
    char byte = 0;

    REQUIRE_OK(gp_shared_arrays_make(&fd, source, &info, samples, labels, &err), err);
    REQUIRE(sscanf(source, "arrays:%u:%u:%" SCNx64, &pid, &descriptor, &token) == 3);

    /* With a wrong descriptor number, /proc has no such file, so the owner must pass the
     * descriptor. */
    snprintf(other, sizeof(other), "arrays:%u:%u:%016" PRIx64, pid, 9999u, token);
    REQUIRE(pipe(served) == 0);
    pid_t child = fork(); /* before the serving thread exists, which could hold an allocator's lock */

    if (child == 0) {
        gp_store *store;

        if (read(served[0], &byte, 1) != 1)
            _exit(2);
        _exit(gp_store_open(&store, other, GP_DATA_TRAIN, NULL) != GP_OK);
    }
    CHECK_STATUS(GP_OK, gp_shared_arrays_serve(&lender, fd, source, &err));
    prctl(PR_SET_DUMPABLE, 0);
    for (int i = 0; i < 20; i++)
        CHECK_STATUS(GP_OK, gp_store_open(&stores[i], other, GP_DATA_TRAIN, &err));
    CHECK(write(served[1], &byte, 1) == 1);
    close(served[0]);
    close(served[1]);
    waitpid(child, &state, 0);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    prctl(PR_SET_DUMPABLE, 1);
    for (int i = 0; i < 20; i++)
        gp_store_close(stores[i]);
    snprintf(other, sizeof(other), "arrays:%u:%u:%016" PRIx64, pid, 9999u, token ^ 1);
    CHECK_STATUS(GP_ENOENT, gp_store_open(&stores[0], other, GP_DATA_TRAIN, &err));
    gp_shared_arrays_serve_end(lender);
    close(fd);
    CHECK_STATUS(GP_ENOENT, gp_store_open(&stores[0], source, GP_DATA_TRAIN, &err));
    CHECK_EVERY_ALLOCATION(gp_shared_arrays_serve(&lender, STDIN_FILENO, source, &err),
                           gp_shared_arrays_serve_end(lender));
}

TEST(values_and_pixel_labels_are_shared_as_targets)
{
    float samples[COUNT * PIXELS], values[COUNT * 2], value[2];
    int32_t pixels[COUNT * PIXELS], got[PIXELS];
    char source[GP_SHARED_ARRAYS_SOURCE_BYTES];
    gp_store_info info = info_of(GP_F32);
    const uint32_t index = 5;
    gp_store *store;
    gp_error err;
    int fd;

    for (int i = 0; i < COUNT * PIXELS; i++) {
        samples[i] = (float)i / 3;
        pixels[i] = i % 4 - 1;
    }
    for (int i = 0; i < COUNT * 2; i++)
        values[i] = (float)i;
    info.targets[0].shape = gp_shape2(HEIGHT, WIDTH);
    REQUIRE_OK(gp_shared_arrays_make(&fd, source, &info, samples, pixels, &err), err);
    REQUIRE_OK(gp_store_open(&store, source, GP_DATA_GIVEN, &err), err);
    REQUIRE_OK(gp_store_read(store, &index, 1, NULL, got, &err), err);
    CHECK(memcmp(pixels + 5 * PIXELS, got, sizeof(got)) == 0);
    gp_store_close(store);
    close(fd);
    info.class_count = 0;
    info.class_names = NULL;
    info.targets[0] = (gp_target){ .dtype = GP_F32, .shape = { .rank = 1, .dim = { 2 } } };
    REQUIRE_OK(gp_shared_arrays_make(&fd, source, &info, samples, values, &err), err);
    REQUIRE_OK(gp_store_open(&store, source, GP_DATA_TRAIN, &err), err);
    REQUIRE_OK(gp_store_read(store, &index, 1, NULL, value, &err), err);
    CHECK(value[0] == 10 && value[1] == 11);
    gp_store_close(store);
    close(fd);
}

TEST(oversized_arrays_and_invalid_labels_are_rejected)
{
    static const int32_t labels[COUNT] = { 0, 1, 3 };
    uint8_t samples[COUNT * PIXELS] = { 0 };
    char source[GP_SHARED_ARRAYS_SOURCE_BYTES];
    gp_store_info info = info_of(GP_U8);
    gp_error err;
    int fd;

    info.height = 100000;
    CHECK_STATUS(GP_ELIMIT, gp_shared_arrays_make(&fd, source, &info, samples, labels, &err));
    info = info_of(GP_U8);
    info.count = 1 << 30;
    info.width = info.height = GP_STORE_SIDE_MAX;
    CHECK_STATUS(GP_ELIMIT, gp_shared_arrays_make(&fd, source, &info, samples, labels, &err));
    info = info_of(GP_U8);
    REQUIRE_OK(gp_shared_arrays_make(&fd, source, &info, samples, labels, &err), err);
    CHECK_STATUS(GP_ECORRUPT, gp_store_open(&(gp_store *){ NULL }, source, GP_DATA_TRAIN, &err));
    CHECK_CONTAINS(err.message, "the label of sample 2 is 3, but there are 3 classes");
    close(fd);
}

/* Open a file with the given bytes under the source's token, with or without seals. */
static gp_status forged_open(const char *source, const uint8_t *bytes, size_t count, bool sealed,
                             gp_error *err)
{
    int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const char *token = strrchr(source, ':');
    char name[GP_SHARED_ARRAYS_SOURCE_BYTES];
    gp_store *store;

    if (fd < 0 || write(fd, bytes, count) != (ssize_t)count ||
        (sealed && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0))
        abort();
    snprintf(name, sizeof(name), "arrays:%d:%d%s", (int)getpid(), fd, token);
    gp_status status = gp_store_open(&store, name, GP_DATA_TRAIN, err);

    if (status == GP_OK)
        gp_store_close(store);
    close(fd);
    return status;
}

TEST(forged_files_are_rejected_or_read_within_bounds)
{
    static const int32_t labels[COUNT] = { 0, 1, 2 };
    uint8_t samples[COUNT * PIXELS] = { 0 }, file[4096];
    char source[GP_SHARED_ARRAYS_SOURCE_BYTES], wrong[GP_SHARED_ARRAYS_SOURCE_BYTES];
    gp_store_info info = info_of(GP_U8);
    gp_error err;
    ssize_t bytes;
    int fd;

    REQUIRE_OK(gp_shared_arrays_make(&fd, source, &info, samples, labels, &err), err);
    bytes = pread(fd, file, sizeof(file), 0);
    REQUIRE(bytes > 100);
    REQUIRE_OK(forged_open(source, file, (size_t)bytes, true, &err), err);
    CHECK_STATUS(GP_ECORRUPT, forged_open(source, file, (size_t)bytes, false, &err));
    CHECK_CONTAINS(err.message, "is not sealed shared memory");
    for (size_t cut = 0; cut < (size_t)bytes; cut += 5)
        CHECK(forged_open(source, file, cut, true, &err) != GP_OK);
    for (size_t i = 0; i < 100; i++)
        for (int bit = 0; bit < 8; bit++) {
            file[i] ^= (uint8_t)(1 << bit);
            if (forged_open(source, file, (size_t)bytes, true, &err) != GP_OK)
                CHECK(err.message[0] != '\0');
            file[i] ^= (uint8_t)(1 << bit);
        }
    strcpy(wrong, source);
    wrong[strlen(wrong) - 1] =
        wrong[strlen(wrong) - 1] == '0' ? '1' : '0'; /* wrong token, as from an earlier process */
    CHECK_STATUS(GP_ENOENT, gp_store_open(&(gp_store *){ NULL }, wrong, GP_DATA_TRAIN, &err));
    CHECK_STATUS(GP_EINVAL, gp_store_open(&(gp_store *){ NULL }, "arrays:12:x", GP_DATA_TRAIN, &err));
    close(fd);
}
