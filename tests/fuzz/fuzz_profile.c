/* fuzz_profile.c: hostile profiles. The first byte selects the format: a profile (0), a command
 * line (1), a time (2), or an amount of memory (3).
 *
 * An accepted profile is unchanged after writing and reading. */
#include <stdlib.h>
#include <string.h>

#include "client/cluster/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort unless kept. Unlike assert(), it works in every build. */
static void promise(int kept)
{
    if (!kept)
        abort();
}

static void profile_try(const char *text, size_t bytes)
{
    static gp_profile profile, again;
    gp_buffer written;
    gp_error err = { GP_OK, "" };

    if (gp_profile_parse(&profile, text, bytes, "a file", &err) != GP_OK) {
        promise(err.message[0] != '\0' && strpbrk(err.message, "\n\033") == NULL);
        return;
    }
    promise(gp_profile_check(&profile, NULL) == GP_OK);
    gp_buffer_init(&written, GP_PROFILE_BYTES_MAX);
    promise(gp_profile_format(&profile, &written, NULL) == GP_OK);
    promise(gp_profile_parse(&again, gp_buffer_text(&written), written.bytes, "again", NULL) == GP_OK);
    promise(memcmp(&profile, &again, sizeof(profile)) == 0);
    gp_buffer_deinit(&written);
}

static void words_try(const char *text)
{
    static gp_profile_words words;

    if (gp_profile_words_split(&words, text, NULL) != GP_OK)
        return;
    promise(words.count > 0 && words.count <= GP_PROFILE_WORDS_MAX && words.word[words.count] == NULL);
    for (uint32_t i = 0; i < words.count; i++)
        promise(words.word[i] >= words.text &&
                words.word[i] + strlen(words.word[i]) < words.text + sizeof(words.text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t seconds, mib;

    if (size == 0)
        return 0;
    char *text = malloc(size);

    if (text == NULL)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0:
        profile_try(text, size - 1);
        break;
    case 1:
        words_try(text);
        break;
    case 2:
        promise(gp_profile_time_s(text, &seconds, NULL) != GP_OK ||
                (seconds > 0 && seconds <= GP_PROFILE_TIME_MAX_S));
        break;
    default:
        promise(gp_profile_memory_mib(text, &mib, NULL) != GP_OK || (mib > 0 && mib <= INT64_C(1) << 30));
    }
    free(text);
    return 0;
}
