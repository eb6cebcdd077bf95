"""PACS: hundreds of networks on twelve pairs of domains, and what wenzel2022 found."""
