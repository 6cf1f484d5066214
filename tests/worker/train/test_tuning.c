/* test_tuning.c: autotuning results of GPU libraries as a document and as a file
 * (worker/train/tuning.h). */
#include "tests/gp_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/train/tuning.h"

static const char here[] = "cuDNN 91900, driver 13000; Some GPU, 9.0",
                  there[] = "cuDNN 91901, driver 13000; Some GPU, 9.0";

static char folder[64];

static void begin(gp_tuning *tuning)
{
    gp_error err;

    snprintf(folder, sizeof(folder), "/tmp/gp_tuning_XXXXXX");
    REQUIRE(mkdtemp(folder) != NULL);
    setenv("XDG_CACHE_HOME", folder, 1);
    REQUIRE_OK(gp_tuning_init(tuning, &err), err);
}

static void end(gp_tuning *tuning)
{
    char command[100];

    gp_tuning_deinit(tuning);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    CHECK_INT(0, system(command));
}

static void choice_add(gp_tuning *tuning, uint32_t number, bool used)
{
    gp_choice *choice = &tuning->choices[tuning->count++];

    *choice = (gp_choice){ .us = number, .used = used };
    snprintf(choice->what, sizeof(choice->what), "conv forward %u", number);
    snprintf(choice->how, sizeof(choice->how), "alone %u-00000000", number);
}

TEST(document_contains_only_choices_in_use)
{
    gp_tuning tuning;
    gp_buffer text;
    gp_error err;

    begin(&tuning);
    choice_add(&tuning, 1, true);
    choice_add(&tuning, 2, false);
    choice_add(&tuning, 3, true);
    gp_buffer_init(&text, GP_TUNING_BYTES_MAX);
    REQUIRE_OK(gp_tuning_write(&text, &tuning, here, &err), err);
    REQUIRE_OK(gp_tuning_read(&tuning, gp_buffer_text(&text), text.bytes, here, &err), err);
    CHECK_INT(2, tuning.count);
    CHECK_TEXT("conv forward 3", tuning.choices[1].what);
    CHECK_TEXT("alone 3-00000000", tuning.choices[1].how);
    CHECK_NEAR(3, tuning.choices[1].us, 0);
    CHECK(!tuning.choices[1].used);
    CHECK_STATUS(GP_ESTALE, gp_tuning_read(&tuning, gp_buffer_text(&text), text.bytes, there, &err));
    CHECK_CONTAINS(err.message, here);
    CHECK_INT(0, tuning.count);
    gp_buffer_deinit(&text);
    end(&tuning);
}

TEST(malformed_document_is_refused_completely)
{
    static const char *const choices[] = {
        "{\"what\":\"\",\"how\":\"b\",\"us\":1}",
        "{\"what\":\"a\",\"us\":1}",
        "{\"what\":\"a\",\"how\":7,\"us\":1}",
        "{\"what\":\"a\",\"how\":\"b\",\"us\":-1}",
        "{\"what\":\"a\",\"how\":\"b\",\"us\":1e300}",
        "{\"what\":\"a\",\"how\":\"b\"}",
        "{\"what\":\"a\\n\",\"how\":\"b\",\"us\":1}",
        "{\"what\":\"a\",\"how\":\"0123456789012345678901234567890123456789\",\"us\":1}",
        "7",
    };
    static const char *const documents[] = {
        "",
        "[]",
        "{",
        "{\"format\":1,\"libraries\":\"cuDNN 91900, driver 13000; Some GPU, 9.0\",\"choices\":[]}",
        "{\"format\":2,\"libraries\":\"cuDNN 91900, driver 13000; Some GPU, 9.0\",\"choices\":{}}",
        "{\"format\":2,\"choices\":[]}",
    };
    gp_tuning tuning;
    char text[400];
    gp_error err;

    begin(&tuning);
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        snprintf(
            text, sizeof(text),
            "{\"format\":2,\"libraries\":\"%s\",\"choices\":[{\"what\":\"a\",\"how\":\"b\",\"us\":1},%s]}",
            here, choices[i]);
        CHECK_STATUS(GP_ECORRUPT, gp_tuning_read(&tuning, text, strlen(text), here, &err));
        CHECK_INT(0, tuning.count);
    }
    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++)
        CHECK_STATUS(GP_ECORRUPT, gp_tuning_read(&tuning, documents[i], strlen(documents[i]), here, &err));
    end(&tuning);
}

TEST(document_size_is_limited)
{
    enum { BYTES = GP_TUNING_BYTES_MAX + 100 };
    static char text[BYTES];
    static const char each[] = "{\"what\":\"a\",\"how\":\"b\",\"us\":1}";
    gp_tuning tuning;
    gp_error err;
    size_t at;

    begin(&tuning);
    for (uint32_t count = GP_CHOICES_MAX; count <= GP_CHOICES_MAX + 1; count++) {
        at = (size_t)snprintf(text, BYTES, "{\"format\":2,\"libraries\":\"%s\",\"choices\":[", here);
        for (uint32_t i = 0; i < count; i++)
            at += (size_t)snprintf(text + at, BYTES - at, "%s%s", i == 0 ? "" : ",", each);
        at += (size_t)snprintf(text + at, BYTES - at, "]}");
        CHECK_STATUS(count == GP_CHOICES_MAX ? GP_OK : GP_ECORRUPT,
                     gp_tuning_read(&tuning, text, at, here, &err));
        CHECK_INT(count == GP_CHOICES_MAX ? GP_CHOICES_MAX : 0, tuning.count);
    }
    at = (size_t)snprintf(text, BYTES, "{\"format\":2,\"libraries\":\"%s\",\"choices\":[]}", here);
    memset(text + at, ' ', BYTES - at);
    CHECK_STATUS(GP_OK, gp_tuning_read(&tuning, text, GP_TUNING_BYTES_MAX, here, &err));
    CHECK_STATUS(GP_ECORRUPT, gp_tuning_read(&tuning, text, GP_TUNING_BYTES_MAX + 1, here, &err));
    end(&tuning);
}

TEST(only_own_files_are_read_back)
{
    gp_tuning tuning;
    gp_error err;
    char path[400], aside[420];

    begin(&tuning);
    CHECK_STATUS(GP_ENOENT, gp_tuning_load(&tuning, here, &err));
    choice_add(&tuning, 1, true);
    REQUIRE_OK(gp_tuning_save(&tuning, here, &err), err);
    REQUIRE_OK(gp_tuning_load(&tuning, here, &err), err);
    CHECK_INT(1, tuning.count);
    CHECK_STATUS(GP_ENOENT, gp_tuning_load(&tuning, there, &err));
    REQUIRE_OK(gp_tuning_path(path, sizeof(path), here, &err), err);
    snprintf(aside, sizeof(aside), "%s.aside", path);
    REQUIRE(rename(path, aside) == 0 && symlink(aside, path) == 0);
    CHECK_STATUS(GP_EIO, gp_tuning_load(&tuning, here, &err));
    CHECK_INT(0, tuning.count);
    REQUIRE(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK_STATUS(GP_EIO, gp_tuning_load(&tuning, here, &err)); /* does not wait for a writer */
    REQUIRE(unlink(path) == 0 && rename(aside, path) == 0);
    REQUIRE(truncate(path, GP_TUNING_BYTES_MAX * 2) == 0);
    CHECK_STATUS(GP_EIO, gp_tuning_load(&tuning, here, &err));
    REQUIRE(truncate(path, 5) == 0);
    CHECK_STATUS(GP_ECORRUPT, gp_tuning_load(&tuning, here, &err));
    end(&tuning);
}

TEST(file_of_other_libraries_under_the_same_name_is_ignored)
{
    gp_tuning tuning;
    gp_error err;
    char ours[400], theirs[400];

    begin(&tuning);
    choice_add(&tuning, 1, true);
    REQUIRE_OK(gp_tuning_save(&tuning, there, &err), err);
    REQUIRE_OK(gp_tuning_path(ours, sizeof(ours), here, &err), err);
    REQUIRE_OK(gp_tuning_path(theirs, sizeof(theirs), there, &err), err);
    REQUIRE(strcmp(ours, theirs) != 0 && rename(theirs, ours) == 0);
    CHECK_STATUS(GP_ECORRUPT, gp_tuning_load(&tuning, here, &err));
    CHECK_CONTAINS(err.message, there);
    end(&tuning);
}

TEST(used_and_newest_choices_are_kept)
{
    gp_tuning tuning;
    gp_error err;

    begin(&tuning);
    for (uint32_t i = 0; i < GP_CHOICES_MAX; i++)
        choice_add(&tuning, i, i == 0);
    REQUIRE_OK(gp_tuning_save(&tuning, here, &err), err);
    REQUIRE_OK(gp_tuning_load(&tuning, here, &err), err);
    CHECK_INT(GP_CHOICES_MAX / 2, tuning.count);
    CHECK_TEXT("conv forward 0", tuning.choices[0].what);
    CHECK_NEAR(GP_CHOICES_MAX - 1, tuning.choices[tuning.count - 1].us, 0);
    CHECK_NEAR(GP_CHOICES_MAX / 2 + 1, tuning.choices[1].us, 0);
    end(&tuning);
}

TEST(oldest_file_beyond_the_limit_is_removed)
{
    gp_tuning tuning;
    gp_error err;
    char path[400], libraries[40];
    int files = 0;

    begin(&tuning);
    for (uint32_t i = 0; i < GP_TUNING_FILES_MAX + 2; i++) {
        snprintf(libraries, sizeof(libraries), "cuDNN %u", i);
        REQUIRE_OK(gp_tuning_save(&tuning, libraries, &err), err);
        REQUIRE_OK(gp_tuning_path(path, sizeof(path), libraries, &err), err);

        /* Explicit timestamps make the age independent of the clock. */
        REQUIRE(utimensat(AT_FDCWD, path,
                          (struct timespec[2]){ { .tv_sec = 1000 + i }, { .tv_sec = 1000 + i } }, 0) == 0);
    }
    CHECK_STATUS(GP_ENOENT, gp_tuning_load(&tuning, "cuDNN 0", &err));
    CHECK_STATUS(GP_ENOENT, gp_tuning_load(&tuning, "cuDNN 1", &err));
    CHECK_STATUS(GP_OK, gp_tuning_load(&tuning, "cuDNN 2", &err));
    *strrchr(path, '/') = '\0';
    DIR *entries = opendir(path);

    for (struct dirent *entry = entries == NULL ? NULL : readdir(entries); entry != NULL;
         entry = readdir(entries))
        files += entry->d_name[0] != '.' || strncmp(entry->d_name, ".tmp", 4) == 0;
    if (entries != NULL)
        closedir(entries);
    CHECK_INT(GP_TUNING_FILES_MAX, files);
    end(&tuning);
}
