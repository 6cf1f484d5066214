/* Keys, key files and the key list: modes, owners and malformed contents. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <zmq.h>

#include "proto/channel/curve.h"
#include "tests/gp_test.h"
#include "tests/proto/scratch.h"

static mode_t mode_of(const char *path)
{
    struct stat seen;

    return lstat(path, &seen) == 0 ? seen.st_mode & 07777 : 0;
}

static void put(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || fchmod(fd, mode) != 0)
        abort();
    close(fd);
}

static gp_key_pair fresh(void)
{
    gp_key_pair pair = { .public_key = "" };
    gp_error err;

    if (gp_key_new(&pair, &err) != GP_OK)
        GP_TEST_FAIL("no key: %s", err.message);
    return pair;
}

TEST(key_file_is_private_with_any_umask_and_reads_back)
{
    const char *path = scratch_path("a.key");
    gp_key_pair pair = fresh(), got;
    gp_error err;
    char public_half[GP_KEY_TEXT];
    mode_t before = umask(0);

    REQUIRE_OK(gp_key_write(path, &pair, false, &err), err);
    umask(before);
    CHECK_INT(0600, mode_of(path));
    REQUIRE_OK(gp_key_read(&got, path, &err), err);
    CHECK_TEXT(pair.public_key, got.public_key);
    CHECK_TEXT(pair.secret_key, got.secret_key);
    REQUIRE_OK(gp_key_read_public(public_half, path, &err), err);
    CHECK_TEXT(pair.public_key, public_half);

    /* an existing key must not be overwritten by accident */
    CHECK_STATUS(GP_EBUSY, gp_key_write(path, &pair, false, &err));
    gp_key_pair other = fresh();

    REQUIRE_OK(gp_key_write(path, &other, true, &err), err);
    REQUIRE_OK(gp_key_read(&got, path, &err), err);
    CHECK_TEXT(other.public_key, got.public_key);
    CHECK_INT(1, scratch_entries());
    unlink(path);
}

TEST(key_file_is_replaced_atomically)
{
    const char *path = scratch_path("b.key");
    gp_key_pair pair = fresh(), got;
    gp_error err;

    REQUIRE_OK(gp_key_write(path, &pair, false, &err), err);
    int old = open(path, O_RDONLY);

    REQUIRE(old >= 0);
    gp_key_pair next = fresh();

    REQUIRE_OK(gp_key_write(path, &next, true, &err), err);
    char text[600] = "";

    CHECK(read(old, text, sizeof(text) - 1) > 0);

    /* the old key, complete: the new file replaced it by rename */
    CHECK(strstr(text, pair.secret_key) != NULL);
    CHECK(strstr(text, next.secret_key) == NULL);
    close(old);
    REQUIRE_OK(gp_key_read(&got, path, &err), err);
    unlink(path);
}

TEST(unsafe_secret_files_are_refused_with_the_fix)
{
    const char *path = scratch_path("c.key"), *link = scratch_path("link.key");
    gp_key_pair pair = fresh(), got = { .public_key = "untouched" };
    gp_error err;

    REQUIRE_OK(gp_key_write(path, &pair, false, &err), err);
    for (unsigned bit = 01; bit <= 040; bit <<= 1) {
        chmod(path, 0600 | bit);
        CHECK_STATUS(GP_EPERM, gp_key_read(&got, path, &err));
    }
    chmod(path, 0640);
    CHECK_STATUS(GP_EPERM, gp_key_read(&got, path, &err));
    CHECK_CONTAINS(err.message, "chmod 600");
    CHECK_TEXT("untouched", got.public_key);
    chmod(path, 0600);
    CHECK(symlink(path, link) == 0);
    CHECK_STATUS(GP_EPERM, gp_key_read(&got, link, &err));
    CHECK_CONTAINS(err.message, "symbolic link");
    unlink(link);

    /* A file of another user: for root a file with another owner, otherwise a file of root. */
    if (geteuid() == 0)
        CHECK(chown(path, 12345, (gid_t)-1) == 0);
    CHECK_STATUS(GP_EPERM, gp_key_read(&got, geteuid() == 0 ? path : "/etc/passwd", &err));
    CHECK_CONTAINS(err.message, "belongs to user");
    unlink(path);
}

TEST(public_key_file_may_be_readable_but_not_writable_by_others)
{
    const char *path = scratch_path("pool.pub");
    gp_key_pair pair = fresh();
    char got[GP_KEY_TEXT];
    gp_error err;

    FILE *file = fopen(path, "w");

    REQUIRE(file != NULL);
    fprintf(file, "# A gradpool key, the half that others may know.\npublic  %s\n", pair.public_key);
    fclose(file);
    chmod(path, 0644);
    REQUIRE_OK(gp_key_read_public(got, path, &err), err);
    CHECK_TEXT(pair.public_key, got);
    chmod(path, 0666);
    CHECK_STATUS(GP_EPERM, gp_key_read_public(got, path, &err));
    unlink(path);
}

TEST(malformed_key_files_are_refused_without_quoting_them)
{
    static const char *const texts[] = {
        "",
        "public\n",
        "public  short\nsecret  short\n",
        "secret  rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\n",
        "public  rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\npublic  "
        "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\n",
        "public  rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7x\n", /* 41 characters */
        "private rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\n",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n",
        /* Secret and public key of different pairs. */
        "public  rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\nsecret  "
        "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs\n",
    };
    const char *path = scratch_path("d.key");
    gp_key_pair got;
    gp_error err;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put(path, texts[i], 0600);
        gp_status status = gp_key_read(&got, path, &err);

        if (status != GP_ECORRUPT)
            GP_TEST_FAIL("text %zu gave %s", i, gp_status_name(status));
        CHECK(strstr(err.message, "D:)Q") == NULL && strstr(err.message, "rq:rM") == NULL);
    }
    char *large = malloc(70000);

    memset(large, '#', 69999);
    large[69999] = '\0';
    put(path, large, 0600);
    CHECK_STATUS(GP_ELIMIT, gp_key_read(&got, path, &err));
    free(large);
    unlink(path);
    CHECK_STATUS(GP_ENOENT, gp_key_read(&got, path, &err));
    CHECK(mkfifo(path, 0600) == 0); /* must be opened without waiting for a writer */
    CHECK_STATUS(GP_EPERM, gp_key_read(&got, path, &err));
    unlink(path);
}

/* ---- key list ---- */

TEST(key_list_stores_entries_and_refuses_duplicates)
{
    static gp_allow_list list, got;
    const char *path = scratch_path("allowed");
    gp_key_pair a = fresh(), b = fresh();
    gp_error err;

    list.count = 0;
    REQUIRE_OK(gp_allow_read(&got, path, &err), err);
    CHECK_INT(0, got.count);
    REQUIRE_OK(gp_allow_add(&list, GP_KEY_CLIENT, "laptop", a.public_key, &err), err);
    CHECK_STATUS(GP_EBUSY, gp_allow_add(&list, GP_KEY_OBSERVER, "laptop", b.public_key, &err));
    CHECK_STATUS(GP_EBUSY, gp_allow_add(&list, GP_KEY_OBSERVER, "screen", a.public_key, &err));
    CHECK_CONTAINS(err.message, "laptop");
    REQUIRE_OK(gp_allow_add(&list, GP_KEY_OBSERVER, "screen", b.public_key, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_allow_add(&list, GP_KEY_CLIENT, "a b", fresh().public_key, &err));
    CHECK_STATUS(GP_EINVAL, gp_allow_add(&list, GP_KEY_CLIENT, "x\nclient y", fresh().public_key, &err));
    CHECK_STATUS(GP_EINVAL, gp_allow_add(&list, GP_KEY_CLIENT, "c", "no key", &err));
    CHECK_STATUS(GP_EINVAL, gp_allow_add(&list, GP_KEY_NOBODY, "c", fresh().public_key, &err));
    REQUIRE_OK(gp_allow_write(path, &list, &err), err);
    CHECK_INT(0600, mode_of(path));
    REQUIRE_OK(gp_allow_read(&got, path, &err), err);
    CHECK_INT(2, got.count);
    CHECK_TEXT("screen", got.entries[1].name);
    CHECK_INT(GP_KEY_OBSERVER, got.entries[1].role);
    CHECK_TEXT(b.public_key, got.entries[1].key);
    CHECK(gp_allow_remove(&got, "laptop"));
    CHECK(!gp_allow_remove(&got, "laptop"));
    CHECK_INT(1, got.count);
    CHECK_TEXT("screen", got.entries[0].name);
    unlink(path);
}

TEST(writable_or_malformed_key_lists_are_refused_as_a_whole)
{
    static gp_allow_list got;
    const char *path = scratch_path("allowed");
    char text[300];
    gp_error err;

    snprintf(text, sizeof(text), "# ours\nclient a %s\nroot b %s\n", fresh().public_key, fresh().public_key);
    put(path, text, 0600);
    CHECK_STATUS(GP_ECORRUPT, gp_allow_read(&got, path, &err));
    CHECK_CONTAINS(err.message, "line 3");
    snprintf(text, sizeof(text), "client a %s\n", fresh().public_key);
    put(path, text, 0660);
    CHECK_STATUS(GP_EPERM, gp_allow_read(&got, path, &err));
    unlink(path);
}

TEST(key_list_has_a_limit)
{
    static gp_allow_list list;
    char name[20];
    gp_error err;

    list.count = 0;
    for (int i = 0; i < GP_ALLOWED_MAX; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        REQUIRE_OK(gp_allow_add(&list, GP_KEY_CLIENT, name, fresh().public_key, &err), err);
    }
    CHECK_STATUS(GP_ELIMIT, gp_allow_add(&list, GP_KEY_CLIENT, "one", fresh().public_key, &err));
    const char *path = scratch_path("allowed");

    REQUIRE_OK(gp_allow_write(path, &list, &err), err); /* a full list fits into the file */
    REQUIRE_OK(gp_allow_read(&list, path, &err), err);
    CHECK_INT(GP_ALLOWED_MAX, list.count);
    unlink(path);
}

TEST(key_list_lock_serializes_writers)
{
    int first, second;
    gp_error err;

    REQUIRE_OK(gp_key_lock(&first, scratch_dir, &err), err);
    int other = open(scratch_dir, O_RDONLY | O_DIRECTORY);

    CHECK(flock(other, LOCK_EX | LOCK_NB) != 0);
    close(other);
    close(first);
    REQUIRE_OK(gp_key_lock(&second, scratch_dir, &err), err);
    close(second);
}

TEST(old_libzmq_and_libzmq_without_curve_are_refused)
{
    gp_error err;

    CHECK_STATUS(GP_EUNSUPPORTED, gp_curve_check_version(4, 3, 2, true, &err));
    CHECK_CONTAINS(err.message, "4.3.3");
    CHECK_STATUS(GP_EUNSUPPORTED, gp_curve_check_version(4, 2, 9, true, &err));
    CHECK_STATUS(GP_EUNSUPPORTED, gp_curve_check_version(4, 3, 4, false, &err));
    CHECK_CONTAINS(err.message, "CURVE");
    CHECK_STATUS(GP_OK, gp_curve_check_version(4, 3, 3, true, &err));
    CHECK_STATUS(GP_OK, gp_curve_check_version(5, 0, 0, true, &err));
}

TEST(failed_allocations_leave_no_file_behind)
{
    const char *path = scratch_path("e.key");
    gp_key_pair pair = fresh();
    gp_error err;

    CHECK_EVERY_ALLOCATION(gp_key_write(path, &pair, false, &err), unlink(path));
    CHECK_INT(0, scratch_entries());
}
