/* fuzz_keys.c: texts about keys. The first byte selects the format: a file of a key pair (0), the
 * list of authorized keys (1), or an endpoint (2: to dial, 3: to listen). The rest is the text.
 *
 * Accepted text is valid, and an accepted list is unchanged after writing and reading. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/channel/curve.h"
#include "proto/channel/endpoint.h"
#include "proto/message/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort unless kept. Unlike assert(), it works in every build. */
static void promise(int kept)
{
    if (!kept)
        abort();
}

static void pair_try(const char *text)
{
    gp_key_pair pair;
    gp_error err;

    if (gp_key_parse(&pair, text, "a file", &err) != GP_OK) {
        promise(strlen(err.message) < sizeof(err.message));
        return;
    }
    promise(pair.public_key[0] == '\0' || gp_key_sound(pair.public_key));
    promise(pair.secret_key[0] == '\0' || gp_key_sound(pair.secret_key));
}

static void list_try(const char *text)
{
    static gp_allow_list list, again;
    static char written[GP_ALLOWED_MAX * 100];
    size_t used = 0;

    if (gp_allow_parse(&list, text, "a list", NULL) != GP_OK)
        return;
    promise(list.count <= GP_ALLOWED_MAX);
    written[0] = '\0';
    for (uint32_t i = 0; i < list.count; i++) {
        const gp_allowed *entry = &list.entries[i];

        promise(entry->role > GP_KEY_NOBODY && entry->role <= GP_KEY_OBSERVER && gp_key_sound(entry->key));
        for (uint32_t j = 0; j < i; j++)
            promise(strcmp(entry->name, list.entries[j].name) != 0 &&
                    strcmp(entry->key, list.entries[j].key) != 0);
        used += (size_t)snprintf(written + used, sizeof(written) - used, "%s %s %s\n",
                                 gp_key_role_word(entry->role), entry->name, entry->key);
    }
    promise(gp_allow_parse(&again, written, "again", NULL) == GP_OK && again.count == list.count);
    for (uint32_t i = 0; i < list.count; i++)
        promise(memcmp(&again.entries[i], &list.entries[i], sizeof(again.entries[i])) == 0);
}

static void endpoint_try(const char *text, bool to_listen)
{
    if (gp_endpoint_check(text, to_listen, NULL) != GP_OK)
        return;
    promise(gp_endpoint_is_remote(text) && strlen(text) < GP_TEXT_ENDPOINT && strrchr(text, ':') > text + 6);
    promise(strpbrk(text, " ;/\t\n") == text + 4); /* only the two slashes */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || memchr(data + 1, '\0', size - 1) != NULL) /* the file readers refuse these */
        return 0;
    char *text = malloc(size);

    if (text == NULL)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0:
        pair_try(text);
        break;
    case 1:
        list_try(text);
        break;
    default:
        endpoint_try(text, data[0] % 4 == 3);
    }
    free(text);
    return 0;
}
