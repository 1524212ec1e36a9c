"""A crawler: tasks that find more tasks to do, until nothing new is found.

The pages are made up (page n links to 2 n and 2 n + 1 and to some older one), so that the example needs no network.
"""
import manta

PAGES = 200


@manta.remote
def fetch(page):
    """The words of a page, and the pages that it links to."""
    links = [n for n in (2 * page, 2 * page + 1, page // 3) if 0 < n <= PAGES]
    return page, f"words of page {page}", links


@manta.remote
class Index:
    def __init__(self):
        self.pages = {}

    def add(self, page, text):
        self.pages[page] = text

    def size(self):
        return len(self.pages)


def main():
    index = Index.remote()
    seen, running = {1}, [fetch.remote(1)]
    while running:
        ready, running = manta.wait(running)
        page, text, links = manta.get(ready[0])
        index.add.remote(page, text)
        for link in links:
            if link not in seen:
                seen.add(link)
                running.append(fetch.remote(link))
    print(f"{manta.get(index.size.remote())} pages of {PAGES}")


if __name__ == "__main__":
    main()
